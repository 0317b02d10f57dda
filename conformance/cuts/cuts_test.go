// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package cuts

import (
	"flag"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

var full = flag.Bool("cuts.full", false, "the long schedules, and a real API server that restarts; minutes")

// trial is a subject, its own network and its meter.
type trial struct {
	subject
	proxy *kubetest.Proxy
	meter *meter
}

// begin runs all subjects on a simulated cluster, each with its own proxy, and begins to
// measure.
func begin(t *testing.T) []trial {
	t.Helper()
	server, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 10, Bookmarks: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	var trials []trial
	for _, s := range subjects {
		proxy, err := kubetest.NewProxy(server.Cluster(0).Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		trials = append(trials, trial{s, proxy, newMeter()})
	}
	for _, x := range trials {
		x.begin(t, x.proxy.Config(server.Cluster(0).Config()))
	}
	return trials
}

// begin runs the subject, and begins to measure when it watches.
func (x trial) begin(t *testing.T, cfg *rest.Config) {
	t.Helper()
	x.start(t, x.meter.measured(cfg))
	x.meter.await(t, 0)
	x.meter.begin()
}

// check compares the figures of all subjects with the reference: a subject may be without
// a watch for twice as long, or for the given time after each of n cuts.
func check(t *testing.T, trials []trial, n int, each time.Duration) {
	t.Helper()
	reference := trials[0].meter.end(trials[0].name)
	limit := max(2*reference.blind, time.Duration(n)*each)
	for _, x := range trials {
		f := x.meter.end(x.name)
		t.Logf("%-14s %2d watches after %d cuts; without a watch for %7d ms in total, at most %6d ms at once",
			f.name, f.watches, n, f.blind.Milliseconds(), f.worst.Milliseconds())
		if f.blind > limit {
			t.Errorf("%s had no watch for %v, client-go for %v", f.name, f.blind, reference.blind)
		}
	}
}

// TestCuts: something between the clients and a healthy server, such as a proxy with a
// timeout, cuts each watch some time after it was opened.
func TestCuts(t *testing.T) {
	t.Parallel()
	type schedule struct {
		name string
		life time.Duration
		cuts int
		each time.Duration
	}
	// The limit of the short run allows for a machine that is busy with other tests. With a
	// back-off after each cut, the time would be more than 5 seconds.
	schedules := []schedule{{"after 1.2 seconds", 1200 * time.Millisecond, 4, time.Second}}
	if *full {
		schedules = []schedule{
			{"after 3 seconds", 3 * time.Second, 20, 100 * time.Millisecond},
			{"after a minute", time.Minute, 5, 100 * time.Millisecond},
		}
	}
	for _, s := range schedules {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			trials := begin(t)
			var running sync.WaitGroup
			for _, x := range trials {
				running.Go(func() {
					for range s.cuts {
						time.Sleep(s.life) // how long a connection lives
						n := x.meter.opened()
						x.proxy.Cut()
						x.meter.await(t, n)
					}
				})
			}
			running.Wait()
			check(t, trials, s.cuts, s.each)
		})
	}
}

// TestRestarts: the server is down for some time, again and again, and refuses connections
// meanwhile. client-go's waits grow from one restart to the next.
func TestRestarts(t *testing.T) {
	t.Parallel()
	// In the short run chance decides: a client that tries just before the server is up waits
	// longer, so the limit is the time up to the next restart.
	every, down, n, each := 4*time.Second, time.Second, 3, 3*time.Second
	if *full {
		every, down, n, each = 20*time.Second, 4*time.Second, 8, 100*time.Millisecond
	}
	trials := begin(t)
	for range n {
		for _, x := range trials {
			x.proxy.Down()
		}
		time.Sleep(down) // how long the server is away
		for _, x := range trials {
			if err := x.proxy.Up(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(every - down) // how long it is there
	}
	check(t, trials, n, each)
}

// TestReal_restarts: the same with a real API server, which is killed. A server that starts
// refuses connections first, and then answers with errors for some time.
func TestReal_restarts(t *testing.T) {
	if !*full {
		t.Skip("takes minutes: -cuts.full")
	}
	const every, n = 20 * time.Second, 6
	cluster := kubetest.Start(t, nil)
	var trials []trial
	for _, s := range subjects {
		x := trial{s, nil, newMeter()}
		cfg := cluster.Config()
		cfg.QPS = -1
		x.begin(t, cfg)
		trials = append(trials, x)
	}
	for range n {
		next := time.After(every)
		cluster.APIServer.Kill()
		began := time.Now()
		if err := cluster.APIServer.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Logf("the API server was ready after %d ms", time.Since(began).Milliseconds())
		<-next
	}
	check(t, trials, n, 100*time.Millisecond)
}
