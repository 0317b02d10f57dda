// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serving

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// maxConnectionMemory is the bound on the memory that one connection of an attacker takes,
// in bytes of heap and stacks.
const maxConnectionMemory = 64 << 10

// attempts limits how often the latency during an attack is measured.
const attempts = 10

// TestAttack holds many slow and half-open connections of every kind, and measures what
// other clients notice and how much memory each connection takes. WATERSHED_ATTACK=10000
// is the long version.
func TestAttack(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address only")
	}
	n, window, windows := 600, time.Second, 2
	if text := os.Getenv("WATERSHED_ATTACK"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		window, windows = 5*time.Second, 5
		measureKinds(t, n/10)
	}
	w := startVictim(t)
	if limit := w.opts.Connections; n > limit-100 {
		t.Logf("%d connections instead of %d: the process has too few file descriptors", limit-100, n)
		n = limit - 100
	}
	client, fresh := w.client(t, true), w.client(t, false)
	fresh.Transport.(*http.Transport).DisableKeepAlives = true
	latencies(t, client, w.address, window/2) // warm up
	before, beforeFresh := quietest(t, client, w.address, window, windows),
		quietest(t, fresh, w.address, window, windows)
	empty := memory()
	end := attack(t, w.address, n, allKinds)
	waitForConnections(t, w, n*9/10)
	time.Sleep(window) // the attack goes on for some time before it is measured
	open := w.Stats().Connections
	each := (memory() - empty) / max(open, 1)
	// Other programs on the machine disturb short measurements, so one quiet moment is
	// enough. A handshake takes the processors of both sides, for which the attacker
	// competes.
	const noise, handshakeNoise = 10 * time.Millisecond, 100 * time.Millisecond
	var during, duringFresh time.Duration
	for range attempts {
		during, duringFresh = quietest(t, client, w.address, window, windows),
			quietest(t, fresh, w.address, window, windows)
		if during <= 2*before+noise && duringFresh <= 2*beforeFresh+handshakeNoise {
			break
		}
	}
	left := w.Stats().Connections
	end()
	after, afterFresh := quietest(t, client, w.address, window, windows), quietest(t, fresh, w.address, window, windows)
	t.Logf("%d connections, %d at the end: %d bytes each; %d refused; p99 of a GET before, during and after: %v, %v, "+
		"%v; with a connection of its own: %v, %v, %v",
		open, left, each, w.Stats().Refused, before, during, after, beforeFresh, duringFresh, afterFresh)
	before, beforeFresh = max(before, after), max(beforeFresh, afterFresh)
	if open < n*7/10 || each > maxConnectionMemory {
		t.Errorf("%d connections of %d are open, with %d bytes each", open, n, each)
	}
	if during > 2*before+noise || duringFresh > 2*beforeFresh+handshakeNoise {
		t.Error("other clients notice the attack")
	}
}

// startVictim starts a server with the default limits.
func startVictim(t *testing.T) *runningServer {
	t.Helper()
	return start(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		ok(rw, r)
	}, nil)
}

// measureKinds logs how much memory a connection of each kind takes.
func measureKinds(t *testing.T, n int) {
	for kind, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			w := startVictim(t)
			empty := memory()
			end := attack(t, w.address, n, kind)
			waitForConnections(t, w, n*9/10)
			time.Sleep(time.Second) // handshakes end, and their memory is free
			open := w.Stats().Connections
			each := (memory() - empty) / open
			end()
			t.Logf("%d connections: %d bytes each", open, each)
			if each > maxConnectionMemory {
				t.Errorf("more than %d", maxConnectionMemory)
			}
		})
	}
}

// waitForConnections waits until n connections are open.
func waitForConnections(t *testing.T, w *runningServer, n int) {
	t.Helper()
	expect.Eventually(t, 90*time.Second, func() error {
		if s := w.Stats(); s.Connections < n {
			return fmt.Errorf("%+v, want %d connections", s, n)
		}
		return nil
	})
}

// memory returns the bytes of heap and stacks in use.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// quietest returns the smallest 99th percentile of several windows, the one that other
// programs on this machine have disturbed least.
func quietest(t *testing.T, c *http.Client, address string, window time.Duration, windows int) time.Duration {
	t.Helper()
	least := time.Hour
	for range windows {
		all := latencies(t, c, address, window/time.Duration(windows))
		slices.Sort(all)
		least = min(least, all[len(all)*99/100])
	}
	return least
}

// latencies sends requests from two goroutines, 500 per second each, and returns how
// long they took.
func latencies(t *testing.T, c *http.Client, address string, window time.Duration) []time.Duration {
	t.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var senders sync.WaitGroup
	for range 2 {
		senders.Go(func() {
			// A request each two milliseconds measures the server, and does not keep it busy.
			for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				began := time.Now()
				resp, err := c.Get("https://" + address + "/")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				mu.Lock()
				all = append(all, time.Since(began))
				mu.Unlock()
			}
		})
	}
	senders.Wait()
	if len(all) == 0 {
		t.Fatal("no request was served")
	}
	return all
}

// TestAttack_resets sends streams and resets them at once, as fast as it can (rapid reset).
// The server ends the connection, and runs no more handlers at a time than a connection may
// have streams.
func TestAttack_resets(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	// The handlers do not notice the end of their streams. If one returned, the server would
	// forget all streams that were reset before they had a handler, and begin to count anew.
	release := make(chan struct{})
	w := start(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-release
		mu.Lock()
		running--
		mu.Unlock()
	}, nil)
	defer close(release)
	c, err := tls.Dial("tcp", w.address, w.config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(closed)
	}()
	// A GET of / with authority "a", by HPACK's static table.
	block := []byte{0x82, 0x84, 0x87, 0x41, 1, 'a'}
	_, err = c.Write(preface)
	sent := 0
	for id := 1; err == nil && id < 400_000; id += 2 {
		var frames []byte
		stream := []byte{0, byte(id >> 16), byte(id >> 8), byte(id)}
		frames = append(append(append(frames, 0, 0, byte(len(block)), 1, 5), stream...), block...)
		frames = append(append(append(frames, 0, 0, 4, 3, 0), stream...), 0, 0, 0, 8)
		_, err = c.Write(frames)
		sent++
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("the connection is not closed")
	}
	mu.Lock()
	defer mu.Unlock()
	// The writes may all fit into the buffers of the sockets, so they need not fail.
	if most == 0 || most > 250 {
		t.Errorf("%d streams are reset, %d handlers ran at the same time", sent, most)
	}
	t.Logf("%d streams, %d handlers at the same time", sent, most)
}
