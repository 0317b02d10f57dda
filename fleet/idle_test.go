// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !race

package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// idleServerVariable makes TestIdleServer serve.
const idleServerVariable = "WATERSHED_TEST_IDLE_SERVER"

// idleConfig is what a client needs to reach a simulated cluster of another process.
type idleConfig struct {
	Host, Token, ServerName string
	CA                      []byte
}

// TestIdleServer serves simulated clusters without objects until its input ends. It runs
// in a process of its own, so that the memory of TestIdle_costsLittle is the mirrors'.
func TestIdleServer(t *testing.T) {
	text := os.Getenv(idleServerVariable)
	if text == "" {
		t.Skip("it is the server of TestIdle_costsLittle")
	}
	var opts simulated.Options
	if err := json.Unmarshal([]byte(text), &opts); err != nil {
		t.Fatal(err)
	}
	s := simulate(t, &opts)
	var configs []idleConfig
	for i := range s.Clusters() {
		c := s.Cluster(i).Config()
		configs = append(configs, idleConfig{c.Host, c.BearerToken, c.ServerName, c.CAData})
	}
	if err := json.NewEncoder(os.Stdout).Encode(configs); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
}

// startIdleServer starts the process and returns the configurations of its clusters.
func startIdleServer(t *testing.T, opts simulated.Options) []*rest.Config {
	t.Helper()
	text, err := json.Marshal(opts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleServer$")
	cmd.Env = append(os.Environ(), idleServerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // the context of the test may have ended it
	})
	var configs []idleConfig
	if err := json.NewDecoder(out).Decode(&configs); err != nil {
		t.Fatal(err)
	}
	var clusters []*rest.Config
	for _, c := range configs {
		clusters = append(clusters, &rest.Config{
			Host:            c.Host,
			BearerToken:     c.Token,
			TLSClientConfig: rest.TLSClientConfig{CAData: c.CA, ServerName: c.ServerName},
		})
	}
	return clusters
}

// idleLimit is how many bytes of heap and stack a mirrored resource may take that has no
// objects and on which nothing happens. 8 KB are stacks: those of the goroutine that reads
// the watch and of net/http's. 2 KB are net/http's, and 1 KB the runtime's.
const idleLimit = 20 << 10

// idleUse is the memory and the goroutines of this process.
type idleUse struct {
	// live are the bytes of objects and stacks. held are those that the process has for
	// them, with the gaps between objects and the runtime's own.
	live, held, goroutines int64
}

// measureIdle returns the use after it has ceased to shrink. Stacks shrink by half in each
// garbage collection.
func measureIdle() idleUse {
	least := idleUse{live: math.MaxInt64}
	for range 10 {
		time.Sleep(100 * time.Millisecond) // goroutines end, and release their memory
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if live := int64(m.HeapAlloc + m.StackInuse); live < least.live {
			held := m.HeapInuse + m.StackInuse + m.MSpanInuse + m.MCacheInuse + m.GCSys + m.OtherSys
			least = idleUse{live, int64(held), int64(runtime.NumGoroutine())}
		}
	}
	return least
}

// TestIdle_costsLittle measures a mirrored resource on which nothing happens. It includes
// the resource's share of its cluster.
func TestIdle_costsLittle(t *testing.T) {
	const first, clusters, types = 2, 12, 200
	r := newRoster()
	f := start(t, r, &fleet.Options{Resources: []string{"*"}, Logger: quiet})
	configs := startIdleServer(t, simulated.Options{Clusters: clusters, Pods: 1, Types: types})
	resources := int64(0)
	join := func(from, to int) idleUse {
		t.Helper()
		for i := from; i < to; i++ {
			r.set(fmt.Sprintf("cluster-%02d", i), configs[i])
		}
		expect.Eventually(t, time.Minute, func() error {
			if n := len(f.Members()); n != to {
				return fmt.Errorf("%d clusters, want %d", n, to)
			}
			return nil
		})
		if err := f.WaitForSync(t.Context()); err != nil {
			t.Fatal(err)
		}
		resources = 0
		for _, m := range f.Members() {
			resources += int64(m.Status().Resources)
		}
		return measureIdle()
	}
	before := join(0, first) // memory that is allocated only once
	already := resources
	after := join(first, clusters)
	n := resources - already
	if n < (clusters-first)*types {
		t.Fatalf("%d resources of %d clusters", n, clusters-first)
	}
	live, held := (after.live-before.live)/n, (after.held-before.held)/n
	goroutines := float64(after.goroutines-before.goroutines) / float64(n)
	t.Logf("%d idle resources: %d bytes (%d with gaps) and %.2f goroutines each", n, live, held, goroutines)
	if live > idleLimit {
		t.Errorf("an idle resource takes %d bytes, want %d at most", live, idleLimit)
	}
	if goroutines > 2.1 {
		t.Errorf("an idle resource takes %.2f goroutines, want 2", goroutines)
	}
}
