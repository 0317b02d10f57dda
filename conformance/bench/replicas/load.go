// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replicas

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/bench/harness"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

const (
	// clustersVariable has the numbers of clusters, windowVariable is how many seconds the load is measured.
	clustersVariable, windowVariable = "WATERSHED_CLUSTERS", "WATERSHED_WINDOW"
	// loadWindow is the default in seconds. Watches are restarted after five to ten minutes, so only a window of
	// wholeWindow is published.
	loadWindow, wholeWindow = 30, 900
	// loadPods is how many pods a simulated cluster has. They do not change.
	loadPods = 100
	// loadReady is how long the replicas may take to read all clusters.
	loadReady = 5 * time.Minute
	// loadQuiet is for how long no cluster has a request when the replicas are at rest. A replica discovers the
	// types of a cluster again up to ten seconds after it has read their definitions.
	loadQuiet = 12 * time.Second
)

// wholeLoad has the numbers of clusters that are published.
const wholeLoad = "10,100"

// auditPolicy records the requests for Leases of groups.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[
{"level":"Metadata","namespaces":["` + groupNamespace + `"],"resources":[{"group":"coordination.k8s.io","resources":["leases"]}]},
{"level":"None"}]}`

// load is what replicas cost simulated clusters and the group cluster.
type load struct {
	clusters, replicas int
	// start is what the clusters counted until the replicas had read them, and steady what they counted in
	// the window after that. Its open watches are those at the end.
	start, steady simulated.Stats
	window        time.Duration
	// leases is how many requests for Leases the group cluster had in the window. hub and peers are bytes in
	// both directions, encrypted: between the replicas and the group cluster, and between the replicas.
	leases, hub, peers int64
}

// perSecond returns how many of n there were in a second of the window.
func (l *load) perSecond(n int64) float64 { return float64(n) / l.window.Seconds() }

// requests returns the number of requests.
func requests(s *simulated.Stats) int64 { return s.Lists + s.Watches + s.Gets + s.Discoveries }

// measureLoads measures one replica, and two in a group, with each number of clusters. All run side by side,
// with simulated clusters of their own.
func (b *bench) measureLoads(ctx context.Context) (all []load, err error) {
	seconds, err := harness.EnvInt(windowVariable, loadWindow)
	if err != nil {
		return nil, err
	}
	text := wholeLoad
	if set := os.Getenv(clustersVariable); set != "" {
		text = set
	}
	var fleets []*loadFleet
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", clustersVariable, text, err)
		}
		for replicas := 1; replicas <= 2; replicas++ {
			f, err := b.startFleet(ctx, n, replicas)
			if err != nil {
				return nil, fmt.Errorf("%d replicas of %d clusters: %w", replicas, n, err)
			}
			defer f.close()
			fleets = append(fleets, f)
		}
	}
	if err := awaitQuiet(ctx, fleets); err != nil {
		return nil, err
	}
	before := make([]load, len(fleets))
	for i, f := range fleets {
		if before[i], err = f.counts(b.audit); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Duration(seconds) * time.Second) // the period of the measurement
	for i, f := range fleets {
		now, err := f.counts(b.audit)
		if err != nil {
			return nil, err
		}
		l := load{
			clusters: f.clusters, replicas: len(f.replicas), start: before[i].steady, steady: now.steady,
			window: now.window - before[i].window, leases: now.leases - before[i].leases, hub: now.hub - before[i].hub,
			peers: now.peers - before[i].peers,
		}
		l.steady.Lists -= l.start.Lists
		l.steady.Watches -= l.start.Watches
		l.steady.Gets -= l.start.Gets
		l.steady.Discoveries -= l.start.Discoveries
		l.steady.Sent -= l.start.Sent
		all = append(all, l)
	}
	return all, nil
}

// loadFleet is one replica, or a group, with simulated clusters of its own.
type loadFleet struct {
	clusters   int
	began      time.Time
	group      string
	simulation *harness.Simulation
	client     *harness.SimulationClient
	replicas   []*harness.Replica
	// hubs are between the replicas and the group cluster, and peers between the replicas.
	hubs, peers []*kubetest.Proxy
}

// startFleet starts simulated clusters and their replicas, and returns when the replicas have read them.
func (b *bench) startFleet(ctx context.Context, clusters, replicas int) (_ *loadFleet, err error) {
	f := &loadFleet{clusters: clusters, began: time.Now(), group: fmt.Sprintf("load-%d-%d", clusters, replicas)}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	f.simulation, err = harness.StartSimulation(ctx, simulated.Options{Clusters: clusters, Pods: loadPods})
	if err != nil {
		return nil, err
	}
	if f.client, err = harness.DialSimulation(f.simulation.Addr); err != nil {
		return nil, err
	}
	for i := range replicas {
		path := filepath.Join(b.dir, fmt.Sprintf("%s-%d", f.group, i))
		if err := f.writeKubeconfig(b, path); err != nil {
			return nil, err
		}
		opts := &harness.ReplicaOptions{Binary: b.binary, Kubeconfig: path}
		if replicas > 1 {
			listen, address, err := f.port()
			if err != nil {
				return nil, err
			}
			opts.Flags = append(b.groupFlags(f.group, listen), "--group-address", address)
		}
		r, err := harness.StartReplica(ctx, b.Cluster.Cluster, "pods", opts)
		if err != nil {
			return nil, err
		}
		f.replicas = append(f.replicas, r)
	}
	return f, f.awaitRead(ctx)
}

// writeKubeconfig writes the simulated clusters, and the group cluster with a proxy of its own, to a file.
func (f *loadFleet) writeKubeconfig(b *bench, path string) error {
	hub := b.Config()
	proxy, err := kubetest.NewProxy(strings.TrimPrefix(hub.Host, "https://"))
	if err != nil {
		return err
	}
	f.hubs = append(f.hubs, proxy)
	k := clientcmdapi.NewConfig()
	add := func(name, server, serverName, token string, ca []byte) {
		k.Clusters[name] = &clientcmdapi.Cluster{
			Server: server, TLSServerName: serverName, CertificateAuthorityData: ca,
		}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	add(b.Name(), proxy.Config(hub).Host, "", hub.BearerToken, hub.CAData)
	for _, c := range f.client.Clusters {
		add(c.Name, c.Host, c.ServerName, c.Token, c.CA)
	}
	return clientcmd.WriteToFile(*k, path)
}

// port returns an address at which a replica can listen for others, and the address for the others, which
// leads there.
func (f *loadFleet) port() (listen, address string, err error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	listen = l.Addr().String()
	proxy, err := kubetest.NewProxy(listen)
	if err != nil {
		return "", "", err
	}
	f.peers = append(f.peers, proxy)
	return listen, proxy.Addr(), nil
}

// awaitRead waits until all replicas have read all clusters, and those of a group have found each other.
func (f *loadFleet) awaitRead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadReady)
	defer cancel()
	for _, r := range f.replicas {
		if err := awaitMetrics(ctx, r, func(text string) bool {
			return strings.Count(text, `state="live"} 1`) == f.clusters+1 && (len(f.replicas) == 1 || isConnected(text))
		}); err != nil {
			return fmt.Errorf("a replica has not read all clusters: %w", err)
		}
	}
	return nil
}

// awaitQuiet waits until the replicas are at rest.
func awaitQuiet(ctx context.Context, fleets []*loadFleet) error {
	ctx, cancel := context.WithTimeout(ctx, loadReady)
	defer cancel()
	for last, since := int64(-1), time.Now(); time.Since(since) < loadQuiet; {
		var now int64
		for _, f := range fleets {
			s, err := f.client.Stats()
			if err != nil {
				return err
			}
			now += requests(&s)
		}
		if now != last {
			last, since = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the clusters have requests all the time: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
	return nil
}

// counts returns what was counted since the start.
func (f *loadFleet) counts(audit string) (l load, err error) {
	l.window = time.Since(f.began)
	if l.steady, err = f.client.Stats(); err != nil {
		return l, err
	}
	for _, p := range f.hubs {
		l.hub += p.Stats().Up + p.Stats().Down
	}
	for _, p := range f.peers {
		l.peers += p.Stats().Up + p.Stats().Down
	}
	l.leases, err = countLeases(audit, f.group)
	return l, err
}

// countLeases returns how many requests for the Leases of a group an audit log has. A list names the group in
// its selector, and other requests have its name in that of the Lease.
func countLeases(path, group string) (n int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			RequestURI string
			ObjectRef  struct{ Name string }
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // it is being written
		}
		query := strings.NewReplacer("%2F", "/", "%3D", "=").Replace(event.RequestURI)
		if strings.HasPrefix(event.ObjectRef.Name, group+"-") || strings.HasSuffix(query, "replica-group="+group) {
			n++
		}
	}
	return n, lines.Err()
}

func (f *loadFleet) close() {
	for _, r := range f.replicas {
		r.Close()
	}
	if f.client != nil {
		_ = f.client.Close()
	}
	if f.simulation != nil {
		f.simulation.Close()
	}
	for _, p := range append(f.hubs, f.peers...) {
		p.Close()
	}
}

// loadReport returns the report of the loads. It has no figure: its values are on pages about many clusters.
func (b *bench) loadReport(all []load) *harness.Report {
	r := &harness.Report{
		Name: "replicaload",
		Heading: fmt.Sprintf("The load of replicas on simulated clusters of %d pods that do not change, of which pods "+
			"and the metadata of types are mirrored, and on a real group cluster; %.0f s.",
			loadPods, all[0].window.Seconds()),
		Columns:  []string{"clusters and replicas"},
		Measures: harness.Program,
		Server:   b.Version,
		Partial: harness.IsExperiment() || os.Getenv(clustersVariable) != "" ||
			all[0].window < wholeWindow*time.Second,
	}
	type reading = load
	var rows []harness.Row[reading]
	for _, l := range all {
		rows = append(rows, harness.Row[reading]{
			Bar: harness.Bar{Name: fmt.Sprintf("%d, %d", l.clusters, l.replicas)},
			Key: fmt.Sprintf("%d.%d", l.clusters, l.replicas), Reading: l,
		})
	}
	harness.AddRows(r, rows,
		harness.Col("requests at the start", harness.Grouped, func(l reading) int64 { return requests(&l.start) }).
			As("start-requests", ""),
		harness.Col("lists among them", harness.Grouped, func(l reading) int64 { return l.start.Lists }).
			As("start-lists", ""),
		harness.Col("MB at the start", "%.2f", func(l reading) float64 { return float64(l.start.Sent) / 1e6 }).
			As("start-sent", "MB"),
		harness.Col("open watches", harness.Grouped, func(l reading) int64 { return l.steady.OpenWatches }).
			As("watches", ""),
		harness.Col("requests/s", "%.3f", func(l reading) float64 { return l.perSecond(requests(&l.steady)) }).
			As("requests", ""),
		harness.Col("bytes/s", harness.Grouped, func(l reading) float64 { return l.perSecond(l.steady.Sent) }).
			As("sent", "bytes"),
		harness.Col("requests/s for Leases", "%.2f", func(l reading) float64 { return l.perSecond(l.leases) }).
			As("leases", ""),
		harness.Col("bytes/s to and from the group cluster", harness.Grouped,
			func(l reading) float64 { return l.perSecond(l.hub) }).As("hub", "bytes"),
		harness.Col("bytes/s between the replicas", harness.Grouped,
			func(l reading) float64 { return l.perSecond(l.peers) }).As("peers", "bytes"),
	)
	return r
}
