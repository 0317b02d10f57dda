// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/replica"
)

// TestPassThrough_buffered has a cluster that stalls before the end of large responses to
// writes. All responses together hold a bounded number of bytes, and arrive complete.
func TestPassThrough_buffered(t *testing.T) {
	w, origins := newOriginsWith(t, 1, nil, &replica.Options{
		OriginTimeout: time.Minute, PassThrough: true,
		Authorize: func(r *http.Request, _ *replica.Request) (*replica.Access, error) {
			return &replica.Access{User: r.Header.Get("Authorization")}, nil
		},
	})
	w.untilCopied(0)
	const writes, pieces, piece, bound = 20, 15, 1 << 20, 120 << 20
	space := []byte(strings.Repeat(" ", piece))
	end := make(chan struct{})
	var sent sync.WaitGroup
	sent.Add(writes)
	origins[0].answers(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("Content-Type", "application/json")
		for range pieces {
			_, _ = rw.Write(space)
		}
		rw.(http.Flusher).Flush()
		sent.Done()
		<-end
		return true
	})
	before := heap()
	var received sync.WaitGroup
	for i := range writes {
		received.Go(func() {
			address := w.url + w.root(0) + "/api/v1/namespaces/n/configmaps"
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", i%4))
			resp, err := w.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); n != pieces*piece || err != nil {
				t.Errorf("%d bytes of %d arrived: %v", n, pieces*piece, err)
			}
		})
	}
	sent.Wait() // at most what the buffers of connections hold is still to be read
	held := heap() - before
	close(end)
	received.Wait()
	t.Logf("%d responses of %d MiB hold %d MiB", writes, pieces, held>>20)
	if held > bound {
		t.Errorf("%d responses hold %d MiB, at most %d are allowed", writes, held>>20, bound>>20)
	}
}

// heap returns the bytes that are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
