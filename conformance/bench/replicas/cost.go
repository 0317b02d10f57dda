// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// costRounds is how many periods each pair of replicas has, and costSeconds how long a period is.
	costRounds, costSeconds = 8, 5
	// costReads and costWrites are how many reads and writes each replica has in a second, and costChanges
	// how many pods of the cluster change.
	costReads, costWrites, costChanges = 200, 20, 100
	// costRest is how many seconds the replicas are measured without any load.
	costRest = 20
	// costWorkers is how many requests each replica has at once.
	costWorkers = 4
	// writeCount is how many writes through a replica are timed.
	writeCount = 1000
	// costPatience is how long replicas may take to find each other.
	costPatience = 2 * time.Minute
	// costObjects is how many config maps are written.
	costObjects = 10
)

// cost is what was measured of two replicas without a group (0) and of two in a group (1).
type cost struct {
	each time.Duration
	// writes has how long each write took. cpu has the cores that a replica used, and memory its RSS in
	// bytes, by period. rest has the cores that a replica used without any load.
	writes      [2]harness.Latencies
	cpu, memory [2][]float64
	rest        [2]float64
}

// costReading is a row of the table.
type costReading struct {
	p50, p99 time.Duration
	// cpu and rest are cores, under load and without, and memory is in bytes.
	cpu, rest, memory float64
}

// readings returns the medians, and the mean of the CPU.
func (c *cost) readings() (alone, group costReading) {
	var all [2]costReading
	for i := range all {
		all[i].p50, all[i].p99, _ = c.writes[i].Quantiles()
		all[i].cpu, all[i].rest, all[i].memory = mean(c.cpu[i]), c.rest[i], median(c.memory[i])
	}
	return all[0], all[1]
}

// writeAdded returns by how many ms the median of a write grows in a group.
func (c *cost) writeAdded() float64 {
	alone, group := c.readings()
	return harness.InMilliseconds(group.p50 - alone.p50)
}

// cpuAdded returns the share of CPU that a replica uses more in a group, and the least and the greatest share
// of a period.
func (c *cost) cpuAdded() (all, least, most float64) {
	ratios := make([]float64, len(c.cpu[0]))
	for i := range ratios {
		ratios[i] = c.cpu[1][i]/c.cpu[0][i] - 1
	}
	return mean(c.cpu[1])/mean(c.cpu[0]) - 1, slices.Min(ratios), slices.Max(ratios)
}

// noteCPU returns the processor time that a write costs both replicas of a group together, besides what the
// group costs at rest: each of them gives as many notes as it receives.
func (c *cost) noteCPU() time.Duration {
	added := mean(c.cpu[1]) - mean(c.cpu[0]) - (c.rest[1] - c.rest[0])
	return time.Duration(added / costWrites * float64(time.Second))
}

// memoryAdded returns the median, over the periods, of the bytes of RSS that a replica has more in a group.
func (c *cost) memoryAdded() float64 {
	differences := make([]float64, len(c.memory[0]))
	for i := range differences {
		differences[i] = c.memory[1][i] - c.memory[0][i]
	}
	return median(differences)
}

func mean(of []float64) float64 {
	sum := 0.0
	for _, x := range of {
		sum += x
	}
	return sum / float64(len(of))
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// subject is a replica with its client, who is a user that may do everything.
type subject struct {
	*harness.Replica
	as     harness.Server
	client *http.Client
}

// measureCost measures two replicas in a group and two without, which all mirror the same cluster. In each
// period both replicas of a pair have the same reads and writes, so that each has as many notes of the other
// as it gives. All four receive all changes.
func (b *bench) measureCost(ctx context.Context) (c cost, err error) {
	rounds, err := harness.EnvInt(harness.EnvRuns, costRounds)
	if err != nil {
		return c, err
	}
	seconds, err := harness.EnvInt(harness.EnvSeconds, costSeconds)
	if err != nil {
		return c, err
	}
	c.each = time.Duration(seconds) * time.Second
	var pairs [2][2]*subject
	for i := range pairs {
		flags := []string{"--pass-through", "--resources", "configmaps"}
		if i == 1 {
			flags = append(flags, b.groupFlags("cost", "127.0.0.1:0")...)
		}
		for k := range pairs[i] {
			s, err := b.startSubject(ctx, flags)
			if err != nil {
				return c, err
			}
			defer s.Close()
			pairs[i][k] = s
		}
	}
	if err := prepare(ctx, pairs); err != nil {
		return c, err
	}
	if err := c.time(ctx, pairs[0][0], pairs[1][0]); err != nil {
		return c, err
	}
	if err := c.idle(pairs); err != nil {
		return c, err
	}
	changes, err := harness.StoredChanges(b.Cluster.Cluster, b.Pods)
	if err != nil {
		return c, err
	}
	for round := range rounds + 1 { // the first is not counted
		for turn := range pairs {
			i := (round + turn) % 2
			if err := c.period(ctx, i, pairs[i], changes, round == 0); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// startSubject starts a replica of pods.
func (b *bench) startSubject(ctx context.Context, flags []string) (*subject, error) {
	r, err := harness.StartReplica(ctx, b.Cluster.Cluster, "pods",
		&harness.ReplicaOptions{Binary: b.binary, Flags: flags})
	if err != nil {
		return nil, err
	}
	s := &subject{Replica: r, as: harness.Server{Process: r.Process, Config: rest.CopyConfig(r.Config)}}
	s.as.Config.BearerToken = b.Config().BearerToken
	if s.client, err = s.as.Client(); err != nil {
		r.Close()
		return nil, err
	}
	return s, nil
}

const configMaps = "/api/v1/namespaces/" + groupNamespace + "/configmaps"

// object returns the name of a config map that is written.
func object(k int) string { return fmt.Sprintf("written-%d", k%costObjects) }

// prepare creates the config maps, and waits until the replicas of the group have found each other.
func prepare(ctx context.Context, pairs [2][2]*subject) error {
	ctx, cancel := context.WithTimeout(ctx, costPatience)
	defer cancel()
	for k := range costObjects {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, object(k))
		if err := pairs[0][0].send(ctx, http.MethodPost, configMaps, body); err != nil {
			return err
		}
	}
	for _, s := range pairs[1] {
		if err := awaitMetrics(ctx, s.Replica, isConnected); err != nil {
			return fmt.Errorf("the other replica is not connected: %w", err)
		}
	}
	return nil
}

// isConnected reports whether a replica and one other can send to each other.
func isConnected(metrics string) bool {
	return strings.Contains(metrics, `watershed_peers{state="connected"} 1`)
}

// awaitMetrics waits until the metrics of a replica are as they should be.
func awaitMetrics(ctx context.Context, r *harness.Replica, good func(string) bool) error {
	for {
		text, err := metricsOf(ctx, r)
		if err != nil || good(text) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// metricsOf returns the metrics of a replica as text.
func metricsOf(ctx context.Context, r *harness.Replica) (string, error) {
	address, _, _ := strings.Cut(strings.TrimPrefix(r.Config.Host, "https://"), "/")
	root := harness.Server{Process: r.Process, Config: rest.CopyConfig(r.Config)}
	root.Config.Host = "https://" + address
	client, err := root.Client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	body, err := root.Get(ctx, client, "/metrics", harness.Format{Accept: "text/plain"})
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

// acknowledged returns how many writes of a replica were acknowledged by all others.
func (s *subject) acknowledged(ctx context.Context) (n int, err error) {
	text, err := metricsOf(ctx, s.Replica)
	if err != nil {
		return 0, err
	}
	found := acknowledgedNotes.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s has no notes", s.Name)
	}
	return strconv.Atoi(found[1])
}

var acknowledgedNotes = regexp.MustCompile(`(?m)^watershed_peer_notes_total\{result="acknowledged"\} (\d+)$`)

// write writes a config map.
func (s *subject) write(ctx context.Context, k int) error {
	body := fmt.Sprintf(`{"data":{"at":"%d"}}`, time.Now().UnixNano())
	return s.send(ctx, http.MethodPatch, configMaps+"/"+object(k), body)
}

// send sends a request.
func (s *subject) send(ctx context.Context, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, s.as.Config.Host+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.as.Config.BearerToken)
	req.Header.Set("Content-Type", harness.JSON)
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %.200s", method, path, resp.Status, text)
	}
	return err
}

// time times writes through a replica alone and through one in a group, one after the other.
func (c *cost) time(ctx context.Context, alone, group *subject) error {
	const warm = writeCount / 10
	for k := range warm + writeCount {
		for turn := range 2 {
			i := (k + turn) % 2
			began := time.Now()
			if err := [2]*subject{alone, group}[i].write(ctx, k); err != nil {
				return err
			}
			if k >= warm {
				c.writes[i] = append(c.writes[i], time.Since(began))
			}
		}
	}
	n, err := group.acknowledged(ctx)
	if err == nil && n < writeCount {
		err = fmt.Errorf("the other replica has acknowledged %d of %d writes", n, warm+writeCount)
	}
	return err
}

// used returns the processor time that both replicas of a pair have used.
func used(pair [2]*subject) (sum time.Duration, err error) {
	for _, s := range pair {
		cpu, err := s.CPU()
		if err != nil {
			return 0, err
		}
		sum += cpu
	}
	return sum, nil
}

// idle measures all replicas without any load.
func (c *cost) idle(pairs [2][2]*subject) error {
	var before, after [2]time.Duration
	for _, at := range []*[2]time.Duration{&before, &after} {
		if at == &after {
			time.Sleep(costRest * time.Second) // the period of the measurement
		}
		for i, pair := range pairs {
			var err error
			if at[i], err = used(pair); err != nil {
				return err
			}
		}
	}
	for i, pair := range pairs {
		c.rest[i] = (after[i] - before[i]).Seconds() / costRest / float64(len(pair))
	}
	return nil
}

// period measures both replicas of pair i under load.
func (c *cost) period(ctx context.Context, i int, pair [2]*subject, changes *harness.Changes, warm bool) error {
	before, err := used(pair)
	if err != nil {
		return err
	}
	began := time.Now()
	profile := pair[0].Profile([]string{"alone", "group"}[i], c.each)
	var loads sync.WaitGroup
	errs := make([]error, 2*len(pair)+1)
	seconds := int(c.each.Seconds())
	for k, s := range pair {
		loads.Go(func() {
			errs[2*k] = harness.AtRate(ctx, costReads*seconds, costReads, costWorkers,
				func(n int) error { return s.read(ctx, n) })
		})
		loads.Go(func() {
			errs[2*k+1] = harness.AtRate(ctx, costWrites*seconds, costWrites, costWorkers,
				func(n int) error { return s.write(ctx, n) })
		})
	}
	loads.Go(func() { _, errs[len(errs)-1] = changes.Run(ctx, costChanges*seconds, costChanges) })
	loads.Wait()
	after, err := used(pair)
	if err := errors.Join(append(errs, err, profile())...); err != nil {
		return err
	}
	var memory float64
	for _, s := range pair {
		rss, err := s.Memory()
		if err != nil {
			return err
		}
		memory += float64(rss)
	}
	if !warm {
		n := float64(len(pair))
		c.cpu[i] = append(c.cpu[i], (after-before).Seconds()/time.Since(began).Seconds()/n)
		c.memory[i] = append(c.memory[i], memory/n)
	}
	return nil
}

// read reads: of ten requests one is a page of a hundred pods, one an object that is written, and the others
// are single pods.
func (s *subject) read(ctx context.Context, n int) error {
	path := "/api/v1/pods?limit=100"
	switch n % 10 {
	case 0:
	case 1:
		path = configMaps + "/" + object(n/10)
	default:
		pod := kubetest.Workload{Seed: 1}.Pod(n % 100)
		path = "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name
	}
	body, err := s.as.Get(ctx, s.client, path, harness.Format{Accept: harness.JSON})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}
