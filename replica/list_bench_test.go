// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/watershed-project/watershed/replica"
)

// BenchmarkList lists 10,000 pods over TLS and HTTP/2. The metric is the processor time of
// the process, which includes the client. "first" lists with empty caches, "again" with
// full ones, and "bare" sends the same bytes from memory.
func BenchmarkList(b *testing.B) {
	w := newSimulatedReplica(b, 1, 10_000, &replica.Options{})
	path := w.pods(0)
	for _, form := range [][2]string{{"json", "identity"}, {"gzip", "gzip"}} {
		header := []string{"Accept", "application/json", "Accept-Encoding", form[1]}
		b.Run(form[0]+"/first", func(b *testing.B) {
			began := processorTime()
			for range b.N {
				w.server.SetCaches(0)
				w.server.SetCaches(1)
				w.discard(path, header...)
			}
			b.ReportMetric(float64((processorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		body, _ := w.read(path, header...)
		b.Run(form[0]+"/again", func(b *testing.B) {
			began := processorTime()
			for range b.N {
				w.discard(path, header...)
			}
			b.ReportMetric(float64((processorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		bare := *w
		h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			out := bufio.NewWriterSize(w, 64<<10)
			for left := body; len(left) > 0; {
				n := min(len(left), 8<<10)
				_, _ = out.Write(left[:n])
				left = left[n:]
			}
			_ = out.Flush()
		}))
		h.EnableHTTP2 = true
		h.StartTLS()
		bare.url, bare.client = h.URL, h.Client()
		b.Run(form[0]+"/bare", func(b *testing.B) {
			began := processorTime()
			for range b.N {
				bare.discard(path, header...)
			}
			b.ReportMetric(float64((processorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
		h.Close()
	}
}

// discard reads a response and drops it.
func (w *simulatedReplica) discard(path string, header ...string) {
	resp, err := w.get(w.t.Context(), path, header...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		w.t.Fatal(err)
	}
}

// processorTime returns the processor time that the process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
