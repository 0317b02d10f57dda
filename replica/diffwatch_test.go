// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// diffWatch is the response to a watch. A stalled one accepts only a limited number of
// bytes.
type diffWatch struct {
	cancel context.CancelFunc
	era    int // in which it began
	// initial means that the state is not complete yet.
	initial bool
	header  http.Header
	done    chan struct{}
	// came is when the first of the events arrived that were taken last.
	came time.Time

	mu      sync.Mutex
	code    int
	bytes   []byte
	err     error
	first   time.Time // when the first event in bytes arrived
	stalled bool
	room    chan struct{}
}

func (w *diffWatch) Header() http.Header { return w.header }

func (w *diffWatch) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.code = code
}

// Write waits while the client is stalled.
func (w *diffWatch) Write(b []byte) (int, error) {
	for {
		w.mu.Lock()
		stalled, err := w.stalled, w.err
		if !stalled && err == nil {
			if len(w.bytes) == 0 {
				w.first = time.Now()
			}
			w.bytes = append(w.bytes, b...)
		}
		w.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case !stalled:
			return len(b), nil
		}
		<-w.room
	}
}

func (w *diffWatch) FlushError() error { return nil }

// SetWriteDeadline with a time in the past cuts off a client that does not read.
func (w *diffWatch) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		w.fail(errors.New("too slow"))
	}
	return nil
}

func (w *diffWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	select {
	case w.room <- struct{}{}:
	default:
	}
}

func (w *diffWatch) stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalled = true
}

// take returns the events that have arrived, and whether the watch has ended.
func (w *diffWatch) take(protobuf bool) (frames [][]byte, code int, over bool) {
	select {
	case <-w.done:
		over = true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.bytes
	w.came = w.first
	w.bytes = nil
	if w.code != http.StatusOK {
		return [][]byte{all}, w.code, over
	}
	for len(all) > 0 {
		n := bytes.IndexByte(all, '\n') + 1
		if protobuf {
			n = 4 + int(uint32(all[0])<<24|uint32(all[1])<<16|uint32(all[2])<<8|uint32(all[3]))
		}
		frames, all = append(frames, all[:n]), all[n:]
	}
	return frames, w.code, over
}
