// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica"
)

// The readers of TestPast_slowReaders: 100 of 10 users, 20 of which, those of two users, do not
// read their responses.
const (
	pastUsers, readersOfUser = 10, 10
	slowUsers                = 2
	// pastMemory is how many bytes they may take. They took 45 to 61 MB, 25 MB of which is what
	// requests may hold: the two that read at a time have a file of the log each.
	pastMemory = 96 << 20
)

// userHeader has the name of the user in the tests of the past.
const userHeader = "Test-User"

// pastReplica is a replica of a cluster whose pods have changed, the first one often.
func pastReplica(t *testing.T) (w *simulatedReplica, pod string) {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Clusters: 1, Pods: 3000})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	c := s.Cluster(0)
	opts := &replica.Options{
		WriteTimeout: 10 * time.Minute,
		Authorize: func(r *http.Request, _ *replica.Request) (*replica.Access, error) {
			user := r.Header.Get(userHeader)
			return &replica.Access{Caller: user, User: user}, nil
		},
	}
	w, f, _ := serveStored(t, s, []fleet.Entry{{Name: c.Name(), Config: c.Config()}}, openFiles(t, t.TempDir()), opts)
	expect.NoError(t, f.WaitForSync(t.Context()))
	w.stored(1)
	m, _ := f.Member(c.Name())
	feed, _ := m.Feed(schema.GroupResource{Resource: "pods"})
	var last uint64
	for i := range c.Pods() {
		last = c.Touch(i)
		if i%80 == 0 {
			last = c.Touch(0)
		}
		if i%100 == 0 { // or else changes of an object can be merged
			_, err = feed.Wait(t.Context(), last)
			expect.NoError(t, err)
		}
	}
	expect.Soon(t, "the last change in the files", func() bool {
		_, err := feed.AtVersion(t.Context(), last)
		return err == nil
	})
	first := c.Pod(0)
	return w, "/clusters/" + c.Name() + "/api/v1/namespaces/" + first.Namespace + "/pods/" + first.Name
}

// stall sends a request for all pods of a while ago over a connection of its own, and does not read
// the response, which has some 15 MB. Each has another time, so that none can use the state of
// another. The caller closes the connection.
func (w *simulatedReplica) stall(user int, at time.Time) net.Conn {
	w.t.Helper()
	address := strings.TrimPrefix(w.url, "https://")
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	expect.NoError(w.t, err)
	_, err = fmt.Fprintf(conn, "GET %s?at=%s HTTP/1.1\r\nHost: %s\r\n%s: slow-%d\r\n\r\n", w.pods(0),
		url.QueryEscape(at.Format(time.RFC3339Nano)), address, userHeader, user)
	expect.NoError(w.t, err)
	return conn
}

// readPast reads the changes of a pod, and its state of a while ago, as a user.
func (w *simulatedReplica) readPast(user int, pod string, at time.Time) error {
	for _, path := range []string{pod + "?changes=1h", pod + "?at=" + url.QueryEscape(at.Format(time.RFC3339Nano))} {
		for {
			response, err := w.get(w.t.Context(), path, userHeader, fmt.Sprint("user-", user))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err != nil {
				return err
			}
			if response.StatusCode == http.StatusOK {
				break
			}
			if response.StatusCode != http.StatusTooManyRequests {
				return fmt.Errorf("%s: %s", path, response.Status)
			}
		}
	}
	return nil
}

// readAll has all users that are not slow read the past, and returns the time that the slowest
// user took.
func (w *simulatedReplica) readAll(pod string, at time.Time) time.Duration {
	w.t.Helper()
	began := time.Now()
	var slowest atomic.Int64
	var reading sync.WaitGroup
	for user := range pastUsers - slowUsers {
		for range readersOfUser {
			reading.Go(func() {
				if err := w.readPast(user, pod, at); err != nil {
					w.t.Error(err)
				}
				for took := int64(time.Since(began)); ; {
					if old := slowest.Load(); took <= old || slowest.CompareAndSwap(old, took) {
						return
					}
				}
			})
		}
	}
	reading.Wait()
	return time.Duration(slowest.Load())
}

// liveBytes returns the bytes of the objects that the garbage collector has found to be in use.
func liveBytes() int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// TestPast_slowReaders has many readers of the past, some of which do not read their responses.
// The memory stays bounded, and the others wait no longer because of them. Both are measured again
// if another process may have taken the CPU.
func TestPast_slowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while: make e2e runs it")
	}
	w, pod := pastReplica(t)
	for try := 1; ; try++ {
		alone, beside, most := w.readBesideSlow(t, pod)
		t.Logf("the slowest of %d users took %v, and %v beside %d slow readers, with %d KiB more memory",
			pastUsers-slowUsers, alone, beside, slowUsers*readersOfUser, most>>10)
		switch {
		case most <= pastMemory && beside <= 2*alone+5*time.Second:
			return
		case try == 4:
			t.Fatalf("the readers hold %d KiB, or the slowest user took %v instead of %v, in each of %d tries",
				most>>10, beside, alone, try)
		}
	}
}

// readBesideSlow returns how long the slowest user took alone and beside slow readers, and the
// memory that all readers had.
func (w *simulatedReplica) readBesideSlow(t *testing.T, pod string) (alone, beside time.Duration, most int64) {
	t.Helper()
	at := time.Now()
	alone = w.readAll(pod, at)
	rest := liveBytes()
	sampling := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			most = max(most, liveBytes()-rest)
			select {
			case <-sampling:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	for user := range slowUsers {
		for i := range readersOfUser {
			conn := w.stall(user, at.Add(-time.Duration(user*readersOfUser+i)*time.Millisecond))
			defer conn.Close()
		}
	}
	beside = w.readAll(pod, at)
	close(sampling)
	sampler.Wait()
	return alone, beside, most
}
