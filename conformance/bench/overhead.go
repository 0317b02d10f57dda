// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	overheadPods = 10_000
	// overheadRounds is how often everything is measured, in turns.
	overheadRounds = 7
	// overheadSeconds is how long each measurement takes.
	overheadSeconds = 5
	// overheadWatchers is how many watches each server has, and overheadChanges how many
	// changes per second it sends to each of them.
	overheadWatchers, overheadChanges = 20, 100
	// beforeVariable is the path of another build of the program, to compare with.
	beforeVariable = "WATERSHED_BEFORE"
)

// overheadServer is a way to run the program.
type overheadServer struct {
	name string
	opts harness.ReplicaOptions
	// server runs while lists and watches are measured.
	server *harness.Replica
}

// overheadBench compares the processor time of the program with and without traces.
type overheadBench struct {
	*harness.Cluster
	servers []*overheadServer
	rounds  int
	each    time.Duration
	// costs has the processor time of one operation, by operation, server and round.
	costs map[string]map[*overheadServer][]time.Duration
	names []string
}

// benchOverhead measures what traces cost. The metrics cannot be turned off: to see what a
// change of the program costs, WATERSHED_BEFORE is the path of a build without it.
func benchOverhead(out io.Writer) error {
	b := &overheadBench{costs: map[string]map[*overheadServer][]time.Duration{}}
	seconds, err := harness.EnvInt(harness.EnvSeconds, overheadSeconds)
	if err != nil {
		return err
	}
	b.each = time.Duration(seconds) * time.Second
	if b.rounds, err = harness.EnvInt(harness.EnvRuns, overheadRounds); err != nil {
		return err
	}
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "watershed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := harness.BuildReplica(ctx, dir)
	if err != nil {
		return err
	}
	var exported atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		exported.Add(n)
	}))
	defer collector.Close()
	if before := os.Getenv(beforeVariable); before != "" {
		b.servers = append(b.servers, &overheadServer{name: "before", opts: harness.ReplicaOptions{Binary: before}})
	}
	b.servers = append(b.servers, &overheadServer{name: "off", opts: harness.ReplicaOptions{Binary: binary}})
	for _, rate := range []struct{ name, perMillion string }{{"1 %", "10000"}, {"100 %", "1000000"}} {
		b.servers = append(b.servers, &overheadServer{name: rate.name, opts: harness.ReplicaOptions{
			Binary: binary, Flags: []string{
				"--tracing-endpoint", collector.URL, "--tracing-sampling-rate-per-million", rate.perMillion,
			},
		}})
	}
	if b.Cluster, err = harness.StartCluster(ctx, overheadPods); err != nil {
		return err
	}
	defer b.Close()
	if err := b.run(ctx); err != nil {
		return err
	}
	if exported.Load() == 0 {
		return errors.New("the collector received nothing")
	}
	b.print(out)
	return nil
}

// run measures everything.
func (b *overheadBench) run(ctx context.Context) error {
	for round := range b.rounds {
		for _, s := range b.order(round) {
			if err := b.sync(ctx, s, round == b.rounds-1); err != nil {
				return err
			}
		}
	}
	defer func() {
		for _, s := range b.servers {
			s.server.Close()
		}
	}()
	for _, q := range listQueries(kubetest.Workload{Seed: 1}, b.Pods) {
		if q.Name != "page" && q.Name != "get one" && q.Name != "json" {
			continue
		}
		for round := range b.rounds {
			for _, s := range b.order(round) {
				c, err := q.Run(ctx, &s.server.Server, b.each, 0)
				if err != nil {
					return fmt.Errorf("%s: %w", q.Name, err)
				}
				b.add(q.Name, s, c.Each())
			}
		}
	}
	return b.watch(ctx)
}

// order returns the servers of a round. Each server is first in some rounds.
func (b *overheadBench) order(round int) []*overheadServer {
	n := round % len(b.servers)
	return slices.Concat(b.servers[n:], b.servers[:n])
}

// sync starts a server, and leaves it running if stay is set.
func (b *overheadBench) sync(ctx context.Context, s *overheadServer, stay bool) (err error) {
	if s.server, err = harness.StartReplica(ctx, b.Cluster.Cluster, "pods", &s.opts); err != nil {
		return err
	}
	cpu, err := s.server.CPU()
	if err != nil || !stay {
		s.server.Close()
	}
	b.add("first sync", s, cpu)
	return err
}

// watch measures all servers at once, while each sends the same changes to its watchers.
func (b *overheadBench) watch(ctx context.Context) error {
	changes, err := harness.StoredChanges(b.Cluster.Cluster, b.Pods)
	if err != nil {
		return err
	}
	watchers := make([]*harness.Watchers, len(b.servers))
	for i, s := range b.servers {
		if watchers[i], err = harness.StartWatchers(ctx, harness.WatchTask{
			At: s.server.Address(), Watchers: overheadWatchers, Streams: 1,
		}); err != nil {
			return err
		}
		defer watchers[i].Close()
	}
	n := overheadChanges * int(b.each/time.Second)
	for range b.rounds {
		before := make([]time.Duration, len(b.servers))
		for i, s := range b.servers {
			if before[i], err = s.server.CPU(); err != nil {
				return err
			}
			if err := watchers[i].Count(); err != nil {
				return err
			}
		}
		if _, err := changes.Run(ctx, n, overheadChanges); err != nil {
			return err
		}
		for i, s := range b.servers {
			if err := watchers[i].Wait(n * overheadWatchers); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			after, err := s.server.CPU()
			if err != nil {
				return err
			}
			b.add("watch, a change", s, (after-before[i])/time.Duration(n))
		}
	}
	return nil
}

func (b *overheadBench) add(operation string, s *overheadServer, cost time.Duration) {
	if b.costs[operation] == nil {
		b.costs[operation] = map[*overheadServer][]time.Duration{}
		b.names = append(b.names, operation)
	}
	b.costs[operation][s] = append(b.costs[operation][s], cost)
}

// print prints the median of each operation and server, and the median of its ratios to the
// first server in the same round, with the least and the greatest one.
func (b *overheadBench) print(out io.Writer) {
	fmt.Fprintf(out, "processor time of one operation, medians of %d rounds of %s, %d pods; in brackets the ratio to "+
		"%q (least to greatest)\n", b.rounds, b.each, b.Pods, b.servers[0].name)
	for _, name := range b.names {
		var line []string
		first := b.costs[name][b.servers[0]]
		for i, s := range b.servers {
			costs := b.costs[name][s]
			text := fmt.Sprintf("%s %s", s.name,
				harness.Median(slices.Clone(costs), time.Duration.Seconds).Round(time.Microsecond))
			if i > 0 {
				var ratios []float64
				for k, c := range costs {
					ratios = append(ratios, float64(c)/float64(first[k]))
				}
				slices.Sort(ratios)
				text += fmt.Sprintf(" (%.3f, %.3f to %.3f)", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
			}
			line = append(line, text)
		}
		fmt.Fprintf(out, "overhead %s: %s\n", name, strings.Join(line, "; "))
	}
}
