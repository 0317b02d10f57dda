// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/history"
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
		if m.State != fleet.Syncing || m.Cause != "" || m.StaleSince.IsZero() ||
			m.StaleSince.After(ended.Add(time.Second)) {
			t.Errorf("the stored copy is %s because of %q since %s", m.State, m.Cause, m.StaleSince)
		}
		close(open)
		expect.Soon(t, "a current copy", func() bool {
			return member().State == fleet.Live && member().StaleSince.IsZero()
		})
	})
}

// storedRun runs a fleet of the cluster "one" with files until the function returns.
func storedRun(t *testing.T, path string, at *front, during func(*testing.T, *fleet.Member)) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		r := newRoster()
		r.set("one", at.config())
		f := start(t, r, &fleet.Options{
			Logger: quiet, Disk: storing(t, path), History: 1 << 20, Resources: []string{"pods"},
		})
		expect.NoError(t, f.WaitForSync(t.Context()))
		m, _ := f.Member("one")
		expect.Soon(t, "a current copy", func() bool { return m.Status().State == fleet.Live })
		during(t, m)
	})
}

// changesOf returns how many changes of pods the files of a member have.
func changesOf(t *testing.T, m *fleet.Member) (n int) {
	t.Helper()
	for _, err := range m.Changes(t.Context(), time.Now().Add(-time.Hour), time.Now(),
		func(schema.GroupVersionResource) bool {
			return true
		}) {
		expect.NoError(t, err)
		n++
	}
	return n
}

// storeChange changes a pod until the files have a change. One that arrives before the first
// complete state is written is a part of that state.
func storeChange(t *testing.T, m *fleet.Member, c *simulated.Cluster) {
	t.Helper()
	expect.Soon(t, "a stored change", func() bool {
		c.Touch(3)
		return changesOf(t, m) > 0
	})
}

// TestStored_waitsForTheIdentity restarts while a request for the identity of the cluster fails.
// The files stay, and are used.
func TestStored_waitsForTheIdentity(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 20})
	path, at := t.TempDir(), newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) { storeChange(t, m, s.Cluster(0)) })
	at.mu.Lock()
	at.failures = 1
	at.mu.Unlock()
	lists := s.Stats().Lists
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) {
		if i := m.Identity(); i.UID != "uid-0" {
			t.Errorf("the identity is %+v", i)
		}
		if n := s.Stats().Lists - lists; n != 0 {
			t.Errorf("%d lists instead of the files", n)
		}
		if n := changesOf(t, m); n == 0 {
			t.Error("the past has no changes")
		}
	})
}

// TestStored_anotherCluster gives the name and the address of a cluster to another one, and back.
// Each has its own files, and its own past.
func TestStored_anotherCluster(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 2, Pods: 20})
	path, at := t.TempDir(), newFront(t)
	at.lead(t, s.Cluster(0), "uid-0")
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) { storeChange(t, m, s.Cluster(0)) })
	at.lead(t, s.Cluster(1), "uid-1")
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) {
		if n := changesOf(t, m); n != 0 {
			t.Errorf("%d changes of the cluster before", n)
		}
	})
	at.lead(t, s.Cluster(0), "uid-0")
	lists := s.Stats().Lists
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) {
		if n := s.Stats().Lists - lists; n != 0 {
			t.Errorf("%d lists instead of the files", n)
		}
		if n := changesOf(t, m); n == 0 {
			t.Error("the past has no changes")
		}
	})
}

// TestStored_restoredAndAhead restarts a fleet after the cluster was restored from a backup and has
// passed the stored version. The copy equals the cluster, and versions from before expire.
func TestStored_restoredAndAhead(t *testing.T) {
	for name, touched := range map[string][]int{"the same object": {3}, "others": {4, 5}} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, &simulated.Options{Clusters: 1, Pods: 20})
			backup := simulate(t, &simulated.Options{Clusters: 1, Pods: 20})
			path, at := t.TempDir(), newFront(t)
			// So pod 3 has another version in each history, however often storeChange writes it.
			s.Cluster(0).Touch(7)
			at.lead(t, s.Cluster(0), "uid-0")
			storedRun(t, path, at, func(t *testing.T, m *fleet.Member) { storeChange(t, m, s.Cluster(0)) })
			restored := backup.Cluster(0)
			for _, pod := range touched {
				restored.Touch(pod)
			}
			for restored.Version() <= s.Cluster(0).Version() {
				restored.Touch(7)
			}
			at.lead(t, restored, "uid-0")
			storedRun(t, path, at, func(t *testing.T, m *fleet.Member) {
				feed, ok := m.Feed(podResource)
				expect.Equal(t, ok, true)
				now, err := feed.Now()
				expect.NoError(t, err)
				for key, o := range now.State.Raw() {
					for i := range restored.Pods() {
						if p := restored.Pod(i); p.Namespace+"/"+p.Name == key &&
							p.ResourceVersion != fmt.Sprint(o.Version()) {
							t.Errorf("%s has version %d, and %s in the cluster", key, o.Version(), p.ResourceVersion)
						}
					}
				}
				expect.Equal(t, feed.Connection().Restores, 1)
			})
		})
	}
}

// TestStored_nothingWithoutIdentity has credentials that cannot read the identity of the cluster:
// another one could take its address.
func TestStored_nothingWithoutIdentity(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 20})
	path, at := t.TempDir(), newFront(t)
	at.lead(t, s.Cluster(0), "")
	storedRun(t, path, at, func(t *testing.T, m *fleet.Member) {
		is := m.Status()
		if problems := is.Problems(); !errors.Is(is.Unstored, disk.ErrUnidentified) || len(problems) != 1 ||
			problems[0].Reason != fleet.NotStored {
			t.Errorf("%v, problems %+v", is.Unstored, problems)
		}
		for _, err := range m.Changes(t.Context(), time.Now().Add(-time.Hour), time.Now(),
			func(schema.GroupVersionResource) bool {
				return true
			}) {
			if !errors.Is(err, history.ErrNotStored) {
				t.Errorf("the past: %v", err)
			}
		}
	})
	if storing(t, path).Storage().Has("one") {
		t.Error("there are files of the cluster")
	}
}
