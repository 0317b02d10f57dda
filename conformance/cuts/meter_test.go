// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package cuts

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// patience is how long a condition may take that normally takes no time.
const patience = time.Minute

// meter measures for how long a client has no watch of pods.
type meter struct {
	// mu guards the fields below: the open watches, when the last one was opened or ended,
	// and how many were opened.
	mu      sync.Mutex
	open    int
	since   time.Time
	watches int
	// blind is the time without a watch up to the last change of open, and worst the
	// longest one.
	blind, worst time.Duration
	// changed is closed and replaced with every change of open.
	changed chan struct{}
}

func newMeter() *meter { return &meter{since: time.Now(), changed: make(chan struct{})} }

// measured returns a configuration whose watches are measured.
func (m *meter) measured(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return measuring{m, next} })
	return cfg
}

// add changes the number of open watches.
func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countLocked()
	m.open += n
	m.watches += max(n, 0)
	close(m.changed)
	m.changed = make(chan struct{})
}

// countLocked counts the time up to now.
func (m *meter) countLocked() {
	now := time.Now()
	if m.open == 0 {
		m.blind += now.Sub(m.since)
		m.worst = max(m.worst, now.Sub(m.since))
	}
	m.since = now
}

// begin begins the measurement.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since, m.blind, m.worst, m.watches = time.Now(), 0, 0, 0
}

// figures are the result of a measurement.
type figures struct {
	name         string
	watches      int
	blind, worst time.Duration
}

// end returns the result of the measurement.
func (m *meter) end(name string) figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countLocked()
	return figures{name, m.watches, m.blind, m.worst}
}

// opened returns how many watches were opened.
func (m *meter) opened() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watches
}

// await waits until more than n watches were opened, and one of them is open.
func (m *meter) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		m.mu.Lock()
		watches, open, changed := m.watches, m.open > 0, m.changed
		m.mu.Unlock()
		if watches > n && open {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Errorf("%d watches were opened in %v, want more than %d", watches, patience, n)
			return
		}
	}
}

// measuring is the transport of a client.
type measuring struct {
	meter *meter
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (m measuring) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && r.URL.Query().Get("watch") != "" &&
		strings.HasSuffix(r.URL.Path, "/pods") {
		m.meter.add(1)
		resp.Body = &body{ReadCloser: resp.Body, ended: sync.OnceFunc(func() { m.meter.add(-1) })}
	}
	return resp, err
}

// WrappedRoundTripper lets clients find the transport that they configure.
func (m measuring) WrappedRoundTripper() http.RoundTripper { return m.next }

// body calls ended when the response has ended, or its reader closes it.
type body struct {
	io.ReadCloser
	ended func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended()
	}
	return n, err
}

func (b *body) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}
