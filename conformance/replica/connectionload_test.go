// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var streamsFlag = flag.Int("streams", 100, "how many commands and followed logs TestConnections_many opens at once, at most 1000")

const (
	// mostConnections is how many connections the replica passes on to one cluster. Half of
	// them may be of one user.
	mostConnections = 1000
	// idleConnections is how many connections to a cluster stay open after their requests,
	// for 90 s. Each has two goroutines.
	idleConnections = 25
	// mostPerStream limits the memory of the program for each open stream, in bytes.
	mostPerStream = 256 << 10
)

// TestConnections_many opens many commands and followed logs at once through the replica, of
// two users, over WebSockets and SPDY. It measures the memory of each and what other requests
// notice, and checks that nothing is left when they have ended in different ways.
func TestConnections_many(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	c := startStreaming(t, &kubetest.Options{
		Name: "one", Users: []kubetest.User{{Name: "other", Groups: []string{"system:masters"}}},
	}, "--resources", "pods", "--pprof", "127.0.0.1:0")
	c.createPod(t, "web")
	c.createPod(t, heldLog+"log")
	other := rest.CopyConfig(c.through)
	other.BearerToken = c.cluster.UserConfig("other").BearerToken
	users := []*rest.Config{c.through, other}

	c.round(t, users, 8) // whatever is created once
	before := c.settled(t, 0, usage{})
	idle := c.latencies(t)
	t.Logf("before: %d goroutines, %d files, heap %.1f MB, resident %.1f MB; %s", before.goroutines, before.files, mega(before.heap), mega(before.resident), idle)
	// The second round would not fit if the first had left a place.
	for i := range 2 {
		with, during := c.round(t, users, *streamsFlag)
		n := int64(*streamsFlag)
		t.Logf("round %d: %d streams: %d goroutines, %d files, heap %.1f MB, resident %.1f MB: %d and %d KB per stream; %s",
			i, n, with.goroutines, with.files, mega(with.heap), mega(with.resident), (with.heap-before.heap)/n>>10, (with.resident-before.resident)/n>>10, during)
		if per := (with.heap - before.heap) / n; per > mostPerStream {
			t.Errorf("a stream takes %d bytes of the heap, more than %d", per, mostPerStream)
		}
		if with.passing != *streamsFlag {
			t.Errorf("%d requests are passed on, want %d", with.passing, *streamsFlag)
		}
		after := c.settled(t, idleConnections, before)
		t.Logf("after: %d goroutines, %d files, heap %.1f MB, resident %.1f MB", after.goroutines, after.files, mega(after.heap), mega(after.resident))
	}
}

func mega(n int64) float64 { return float64(n) / (1 << 20) }

// settled waits until the process uses as much as before, apart from idle connections, and
// returns what it uses.
func (c *streaming) settled(t *testing.T, idle int, before usage) (u usage) {
	t.Helper()
	last := usage{}
	expect.Eventually(t, patience, func() (err error) {
		if u, err = c.process.usage(); err != nil {
			return err
		}
		commands, logs := c.kubelet.running()
		same := u.goroutines == last.goroutines && u.files == last.files
		last = u
		switch {
		case u.passing > 0 || commands > 0 || logs > 0:
			return fmt.Errorf("%d requests are passed on; the kubelet has %d commands and %d logs", u.passing, commands, logs)
		case before == usage{}:
			if !same {
				return fmt.Errorf("%d goroutines, %d files", u.goroutines, u.files)
			}
		case u.goroutines > before.goroutines+4*idle || u.files > before.files+2*idle:
			return fmt.Errorf("%d goroutines and %d files are left, before there were %d and %d", u.goroutines, u.files, before.goroutines, before.files)
		}
		return nil
	})
	return u
}

// round opens n streams, half of them logs, checks them, and ends them. It returns what the
// process used and the latencies of other requests while they were open.
func (c *streaming) round(t *testing.T, users []*rest.Config, n int) (usage, string) {
	t.Helper()
	streams := c.openAll(t, users, n)
	if n == mostConnections {
		for _, user := range users {
			if _, err := openLog(t.Context(), user, heldLog+"log"); !apierrors.IsTooManyRequests(err) {
				t.Errorf("one connection more than %d: %v", n, err)
			}
		}
	}
	// The memory of a command after it has been used.
	c.each(streams, func(i int, s *heldStream) {
		if s.input != nil {
			if err := s.echo(strings.Repeat("0123456789", 3000) + "\n"); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		}
	})
	during := c.latencies(t)
	with, err := c.process.usage()
	if err != nil {
		t.Fatal(err)
	}
	// Some are ended by their clients, the others by the node.
	c.each(streams, func(i int, s *heldStream) {
		switch {
		case isCancelled(i):
			s.cancel()
		case s.input != nil:
			_ = s.input.Close()
		}
	})
	c.kubelet.endLogs()
	c.each(streams, func(i int, s *heldStream) {
		err := s.endsWithin(t, patience)
		switch out := s.out.String(); {
		case isCancelled(i):
		case err != nil:
			t.Errorf("stream %d: %v", i, err)
		case s.input == nil && out != "first\nlast\n":
			t.Errorf("log %d: %q", i, out)
		}
		s.cancel()
	})
	return with, during
}

// isCancelled reports whether the client ends a stream: three of eight, a log and a command
// over either protocol.
func isCancelled(i int) bool { return i%8 == 0 || i%8 == 1 || i%8 == 7 }

// openAll opens n streams, a few at a time.
func (c *streaming) openAll(t *testing.T, users []*rest.Config, n int) []*heldStream {
	t.Helper()
	streams := make([]*heldStream, n)
	began := time.Now()
	c.each(streams, func(i int, _ *heldStream) {
		var err error
		user := users[i/2%2]
		if i%2 == 0 {
			streams[i], err = openLog(t.Context(), user, heldLog+"log")
		} else {
			streams[i], err = openCommand(t.Context(), user, i/4%2 == 0)
		}
		if err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d streams opened in %s", n, time.Since(began).Round(time.Millisecond))
	return streams
}

// each calls a function for each stream, for some at a time.
func (*streaming) each(streams []*heldStream, f func(int, *heldStream)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 16 {
		all.Go(func() {
			for i := range next {
				f(i, streams[i])
			}
		})
	}
	for i := range streams {
		next <- i
	}
	close(next)
	all.Wait()
}

// latencies measures requests that the copy answers and requests that are passed on, for some
// seconds.
func (c *streaming) latencies(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	measure := func(get func(context.Context, *kubernetes.Clientset) error) []time.Duration {
		client := c.client(t, c.through)
		var all []time.Duration
		for ctx.Err() == nil {
			began := time.Now()
			if err := get(ctx, client); err != nil && ctx.Err() == nil {
				t.Error(err)
				break
			}
			all = append(all, time.Since(began))
			time.Sleep(2 * time.Millisecond)
		}
		slices.Sort(all)
		return all
	}
	var copied, passed []time.Duration
	var both sync.WaitGroup
	both.Go(func() {
		copied = measure(func(ctx context.Context, client *kubernetes.Clientset) error {
			_, err := client.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{})
			return err
		})
	})
	both.Go(func() {
		passed = measure(func(ctx context.Context, client *kubernetes.Clientset) error {
			_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	})
	both.Wait()
	return fmt.Sprintf("%d gets of the copy p50 %s p99 %s, %d passed on p50 %s p99 %s", len(copied), percentile(copied, 50), percentile(copied, 99),
		len(passed), percentile(passed, 50), percentile(passed, 99))
}
