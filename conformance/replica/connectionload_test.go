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

var streamsFlag = flag.Int("streams", 100,
	"how many commands and followed logs TestConnections_many opens at once, at most 1000")

const (
	// mostConnections is how many connections the replica passes on to one cluster. Half of
	// them may be of one user.
	mostConnections = 1000
	// mostPerStream limits the memory of the program for each open stream, in bytes.
	mostPerStream = 128 << 10
	// mostLeft is how many more goroutines and files than before may be left, because the
	// program has other work too.
	mostLeft = 4
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
	c.createPods(t, "web", heldLog+"log")
	c.copied = c.client(t, c.through)
	l := &streamLoad{streaming: c, users: []*rest.Config{c.through, c.at("other")}, passed: c.client(t, c.through)}
	n := int64(*streamsFlag)

	l.round(t, 8) // whatever is created once
	before := c.settled(t)
	t.Logf("before: %s; %s", before, l.latencies(t))
	// The second round would not fit if the first had left a place.
	for i := range 2 {
		with, during := l.round(t, int(n))
		t.Logf("round %d: %d streams: %s: heap %d KB and resident %d KB per stream; %s",
			i, n, with, (with.heap-before.heap)/n>>10, (with.resident-before.resident)/n>>10, during)
		if per := (with.heap - before.heap) / n; per > mostPerStream {
			t.Errorf("a stream takes %d bytes of the heap, more than %d", per, mostPerStream)
		}
		if with.passing != int(n) {
			t.Errorf("%d requests are passed on, want %d", with.passing, n)
		}
		t.Logf("after: %s", c.restored(t, before))
	}
}

// settled waits until nothing is passed on and the numbers of goroutines and files of the
// process do not change any more, and returns what it uses.
func (c *streaming) settled(t *testing.T) (u usage) {
	t.Helper()
	last := usage{}
	expect.Eventually(t, patience, func() (err error) {
		last = u
		if u, err = c.used(); err == nil && (u.goroutines != last.goroutines || u.files != last.files) {
			time.Sleep(200 * time.Millisecond) // two measurements that are equal must not be of the same moment
			err = fmt.Errorf("changing: %s", u)
		}
		return err
	})
	return u
}

// restored waits until nothing is passed on and the process uses as much as before, and
// returns what it uses.
func (c *streaming) restored(t *testing.T, before usage) (u usage) {
	t.Helper()
	expect.Eventually(t, patience, func() (err error) {
		if u, err = c.used(); err == nil &&
			(u.goroutines > before.goroutines+mostLeft || u.files > before.files+mostLeft) {
			err = fmt.Errorf("left: %s; before: %s", u, before)
		}
		return err
	})
	return u
}

// used returns what the process uses, and an error while requests are passed on.
func (c *streaming) used() (usage, error) {
	closeIdle()
	u, err := usageOf(c.process)
	if commands, logs := c.kubelet.running(); err == nil && (u.passing > 0 || commands > 0 || logs > 0) {
		err = fmt.Errorf("%d requests are passed on; the kubelet has %d commands and %d logs", u.passing, commands,
			logs)
	}
	return u, err
}

// streamLoad opens streams of users, half of them for each, and measures other requests.
type streamLoad struct {
	*streaming
	users []*rest.Config
	// passed is the client for requests that are passed on.
	passed *kubernetes.Clientset
}

// round opens n streams, half of them logs, checks them, and ends them. It returns what the
// process used and the latencies of other requests while they were open.
func (c *streamLoad) round(t *testing.T, n int) (usage, string) {
	t.Helper()
	began := time.Now()
	streams := make([]*heldStream, n)
	for i, user := range c.users {
		c.open(t, user, streams[i*n/2:(i+1)*n/2])
		if n == mostConnections {
			c.refuses(t, user, []string{"500 connections of this user", "1000 connections are"}[i])
		}
	}
	t.Logf("%d streams opened in %s", n, time.Since(began).Round(time.Millisecond))
	// The memory of a command after it has been used.
	c.each(streams, func(i int, s *heldStream) {
		if s.input != nil {
			if err := s.echo(strings.Repeat("0123456789", 3000) + "\n"); err != nil {
				t.Errorf("command %d echoes: %v", i, err)
			}
		}
	})
	during := c.latencies(t)
	with, err := usageOf(c.process)
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
			t.Errorf("stream %d ended: %v", i, err)
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

// open opens streams of a user, a few at a time.
func (c *streamLoad) open(t *testing.T, user *rest.Config, streams []*heldStream) {
	t.Helper()
	c.each(streams, func(i int, _ *heldStream) {
		var err error
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
}

// refuses checks that the replica refuses one more log and one more command.
func (*streamLoad) refuses(t *testing.T, user *rest.Config, message string) {
	t.Helper()
	_, err := openLog(t.Context(), user, heldLog+"log")
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), message) {
		t.Errorf("one log more: %v, want %q", err, message)
	}
	if _, err := openCommand(t.Context(), user, true); err == nil || !strings.Contains(err.Error(), message) {
		t.Errorf("one command more: %v, want %q", err, message)
	}
}

// each calls a function for each stream, for some at a time.
func (*streamLoad) each(streams []*heldStream, f func(int, *heldStream)) {
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

// latencies measures requests that the copy answers and requests that are passed on, for up
// to some seconds.
func (c *streamLoad) latencies(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*streamsFlag)*4*time.Millisecond)
	defer cancel()
	// Each request ends before latencies returns: the replica would still count one that was
	// cancelled.
	measure := func(get func() error) (all []time.Duration) {
		for ctx.Err() == nil {
			began := time.Now()
			if err := get(); err != nil {
				t.Errorf("a request beside the streams: %v", err)
				break
			}
			all = append(all, time.Since(began))
			time.Sleep(2 * time.Millisecond) // requests measure the replica, and do not keep it busy
		}
		slices.Sort(all)
		return all
	}
	var copied, passed []time.Duration
	var both sync.WaitGroup
	both.Go(func() {
		copied = measure(func() error {
			_, err := c.copied.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
			return err
		})
	})
	both.Go(func() {
		passed = measure(func() error {
			_, err := c.passed.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
			return err
		})
	})
	both.Wait()
	return fmt.Sprintf("%d gets of the copy p50 %s p99 %s, %d passed on p50 %s p99 %s", len(copied),
		percentile(copied, 50), percentile(copied, 99),
		len(passed), percentile(passed, 50), percentile(passed, 99))
}
