// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// newTestFeed returns the feed of the pods of a simulated cluster.
func newTestFeed(t *testing.T) *history.Feed {
	t.Helper()
	s, err := simulated.New(&simulated.Options{Pods: 5})
	expect.NoError(t, err)
	t.Cleanup(s.Close)
	d, err := directory.NewStatic(fleet.Entry{Name: "one", Config: s.Cluster(0).Config()})
	expect.NoError(t, err)
	f, err := fleet.New(d, &fleet.Options{
		Resources: []string{"pods"}, History: 1 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		expect.NoError(t, <-ended)
	})
	expect.NoError(t, f.WaitForSync(t.Context()))
	m, _ := f.Member("one")
	feed, ok := m.Feed(schema.GroupResource{Resource: "pods"})
	if !ok {
		t.Fatal("there is no feed of pods")
	}
	return feed
}

// TestWrites_slowReader checks that a reader which waited for a write does not make the replica
// forget a later one, if the note of the first was removed and another made meanwhile.
func TestWrites_slowReader(t *testing.T) {
	feed := newTestFeed(t)
	now, err := feed.Now()
	expect.NoError(t, err)
	var w writes
	at := writer{"ann", feed.Resource().GroupResource()}
	w.add(at.user, feed, effect{version: now.Version})
	slow, ok := w.before(at)
	if !ok {
		t.Fatal("the write is not noted")
	}
	if !w.wait(t.Context(), at.user, feed) {
		t.Fatal("the copy has the write, and a read is passed on")
	}
	w.add(at.user, feed, effect{version: now.Version + 1})
	if !w.settle(at, slow, feed) {
		t.Error("the reader of the first write still waits")
	}
	if _, ok := w.before(at); !ok {
		t.Error("the second write is forgotten, and the copy does not have it")
	}
}
