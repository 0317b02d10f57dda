// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/replica/internal/respond"
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

// TestWrites_received checks what the notes of other replicas may take: they are refused beyond the
// budget, return their bytes when the copy has the writes, and do not count for longer than a minute
// if the copy never gets them.
func TestWrites_received(t *testing.T) {
	feed := newTestFeed(t)
	now, err := feed.Now()
	expect.NoError(t, err)
	var key string
	for key = range now.State.All() {
		break
	}
	budget := respond.NewBudget(10_000)
	w := writes{budget: budget}
	gone := change{key: "n/gone", uid: "1", kind: removed}
	stays := change{key: key, kind: removed}
	for range 3 { // replayed
		if !w.add("ann", feed, effect{version: now.Version, objects: []change{gone, stays}}) {
			t.Fatal("a note does not fit")
		}
	}
	if got, least := budget.Taken(), writtenBytes+2*pendingBytes; got < least || got > least+200 {
		t.Errorf("a note that arrived three times takes %d bytes, want about %d", got, least)
	}
	n := 0
	for ; w.add(fmt.Sprint(n), feed, effect{version: now.Version + 1}); n++ {
		if n > 100 {
			t.Fatal("notes are not bounded")
		}
	}
	if n < 20 || w.all[writer{user: "", resource: feed.Resource().GroupResource()}] != nil {
		t.Errorf("%d notes fit, or all users wait", n)
	}
	at := writer{"ann", feed.Resource().GroupResource()}
	before, _ := w.before(at)
	if w.settle(at, before, feed) {
		t.Error("the pod is still in the copy, and its deletion is taken for known")
	}
	for at, one := range w.all {
		one.expires = time.Now().Add(-time.Second)
		if before, ok := w.before(at); !ok || !w.settle(at, before, feed) {
			t.Errorf("%v: the note still counts", at)
		}
	}
	if len(w.all) > 0 || budget.Taken() != 0 {
		t.Errorf("%d notes are left, with %d bytes", len(w.all), budget.Taken())
	}
	w.add("ann", feed, effect{version: now.Version + 1, objects: []change{gone}})
	w.close()
	if !w.add("ann", feed, effect{version: now.Version + 1}) || len(w.all) > 0 || budget.Taken() != 0 {
		t.Errorf("a cluster that has left has %d notes, with %d bytes", len(w.all), budget.Taken())
	}
}
