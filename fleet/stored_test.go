// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// storing opens a directory for the duration of a test.
func storing(t *testing.T, path string) *disk.Directory {
	t.Helper()
	d, err := disk.Open(path, nil)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// heldWatches keeps watches back until it is closed.
type heldWatches struct {
	next http.RoundTripper
	open chan struct{}
}

func (h *heldWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") != "" {
		select {
		case <-h.open:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return h.next.RoundTrip(req)
}

// TestStats_storedStateIsStale starts from files, and the cluster does not send the changes
// since at first.
func TestStats_storedStateIsStale(t *testing.T) {
	const pods = 20
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: pods})
	path, c := t.TempDir(), s.Cluster(0)
	var ended time.Time
	t.Run("first", func(t *testing.T) {
		r := newRoster()
		r.set(c.Name(), c.Config())
		f := start(t, r, &fleet.Options{Logger: quiet, Disk: storing(t, path)})
		expect.NoError(t, f.WaitForSync(t.Context()))
		if m := f.Stats().Members[0]; !m.StaleSince.IsZero() {
			t.Errorf("a current copy is stale since %s", m.StaleSince)
		}
		ended = time.Now()
	})
	t.Run("second", func(t *testing.T) {
		r, open := newRoster(), make(chan struct{})
		cfg := c.Config()
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &heldWatches{next, open} })
		r.set(c.Name(), cfg)
		f := start(t, r, &fleet.Options{Logger: quiet, Disk: storing(t, path)})
		member := func() fleet.MemberStats { return f.Stats().Members[0] }
		expect.Soon(t, "stored objects", func() bool {
			return len(f.Members()) == 1 && fleet.OfResource[*wire.Object](f, podResource).Len() == pods
		})
		m := member()
		if m.State != fleet.Syncing || m.Cause != "" || m.StaleSince.IsZero() || m.StaleSince.After(ended.Add(time.Second)) {
			t.Errorf("the stored copy is %s because of %q since %s", m.State, m.Cause, m.StaleSince)
		}
		close(open)
		expect.Soon(t, "a current copy", func() bool { return member().State == fleet.Live && member().StaleSince.IsZero() })
	})
}
