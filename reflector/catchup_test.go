// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// stored returns a world whose store has the state of an earlier run: a, b and c, at version
// 3. The reflector does not run yet.
func stored(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, nil, nil)
	w.puts("a", "b", "c")
	return w.keep()
}

// keep stores the state of the server, and makes the reflector continue from there.
func (w *world) keep() *world {
	deltas, objects := delta.Deltas[pod]{}, []reflector.StoredObject{}
	for key, p := range w.server.state() {
		deltas = append(deltas, delta.Delta[pod]{Type: delta.Replaced, Key: key, Object: p})
		objects = append(objects, reflector.StoredObject{Key: key, UID: p.Text, Version: uint64(p.Version)})
	}
	version := uint64(w.server.at())
	w.store.Apply(append(deltas, delta.Delta[pod]{Type: delta.Bookmark, Version: version}))
	w.Continue(version, time.Now().Add(-time.Hour), objects...)
	return w
}

func TestContinue(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*server)
		asked  []string
		got    []string
		after  time.Duration // until the copy is current, rounded down
	}{
		"changes": {
			func(s *server) { s.put("a", "second"); s.del("b") },
			[]string{"get c", "current version", "watch 3"},
			[]string{"Updated a@4", "Deleted b@5", "Bookmark 5"}, 0,
		},
		"nothing has changed": {
			func(*server) {},
			[]string{"get c", "current version", "watch 3"},
			[]string{"Bookmark 3"}, 0,
		},
		"other resources have changed": {
			func(s *server) { s.skip(4) },
			[]string{"get c", "current version", "watch 3"},
			[]string{"Bookmark 7"}, time.Second,
		},
		"no bookmarks": {
			func(s *server) { s.skip(4); s.marks = 0 },
			[]string{"get c", "current version", "watch 3", "stream 3"},
			[]string{"Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 7"}, 3 * time.Second,
		},
		"the version has expired": {
			func(s *server) { s.put("a", "second"); s.del("b"); s.forget() },
			[]string{"get c", "current version", "watch 3", "current version", "watch 3 apart", "stream 3"},
			[]string{"Replaced a@4", "Replaced c@3", "Deleted b@2 (missed)", "Bookmark 5"}, 0,
		},
		"another server has the changes": {
			func(s *server) { s.put("a", "second"); s.fail(watches, fault{}, fault{first: []item{{err: expired}}}) },
			[]string{"get c", "current version", "watch 3", "current version", "watch 3 apart"},
			[]string{"Updated a@4", "Bookmark 4"}, 0,
		},
		"the server has gone back": {
			func(s *server) { s.restore(2) },
			[]string{"get c", "get b", "current version", `list "", limit 1`, "stream"},
			[]string{
				"Replaced a@1 (missed)", "Replaced b@2 (missed)", "Deleted c@3 (missed)", "Bookmark 2 (missed)",
			}, 0,
		},
		"no streams": {
			func(s *server) { s.put("a", "second"); s.mode = refuses },
			[]string{"get c", "current version", `list "", limit 1`, "watch 3"},
			[]string{"Updated a@4", "Bookmark 4"}, 0,
		},
		"the selector is ignored": {
			func(s *server) { s.put("a", "second"); s.careless = true },
			[]string{"get c", "current version", `list "", limit 1`, "watch 3"},
			[]string{"Updated a@4", "Bookmark 4"}, 0,
		},
	} {
		bubble(name, t, func(t *testing.T) {
			w := stored(t)
			tt.change(w.server)
			began := time.Now()
			w.start()
			if tt.after > 0 {
				w.let(tt.after - time.Millisecond)
				s := w.Status()
				expect.Equal(t, s.State, reflector.Resuming)
				expect.Equal(t, time.Since(s.StaleSince) > time.Hour-time.Second, true)
			}
			w.untilCopied()
			w.until("current", func() bool { return w.store.Snapshot().Version() == uint64(w.server.at()) })
			if took := time.Since(began); took < tt.after || took > tt.after+3*time.Second {
				t.Errorf("current after %v, want %v", took, tt.after)
			}
			w.wantGot(tt.got...)
			w.wantAsked(tt.asked...)
			s := w.Status()
			expect.Equal(t, s.StaleSince, time.Time{})
			expect.Equal(t, s.Recoveries <= 1, true)

			// Changes after that are followed.
			w.server.put("z", "")
			w.let(10 * time.Second)
			w.untilCopied()
		})
	}
}

// TestContinue_restored continues a state that was stored at version 8: a@1, b@2, d@4, c@5, and
// e@6. The server is restored from an older backup, and advances beyond version 8.
func TestContinue_restored(t *testing.T) {
	begin := []string{"get e"}
	for name, tt := range map[string]struct {
		backup int
		change func(*server)
		asked  []string
		found  bool
	}{
		"same history": {
			8, func(s *server) { s.put("a", "") }, []string{"get e", "current version", "watch 8"}, false,
		},
		"a write lost": {
			5, func(s *server) { s.skip(9) }, []string{"get e", "get c", "current version", "watch 8", "stream"}, true,
		},
		"an update lost": {3, func(s *server) { s.put("e", "other"); s.skip(9) }, append(begin, "stream"), true},
		"another write before the version": {
			5, func(s *server) { s.skip(1); s.put("e", ""); s.skip(9) }, append(begin, "stream"), true,
		},
		"the same version of another object": {
			5, func(s *server) { s.put("e", "other"); s.skip(9) }, append(begin, "stream"), true,
		},
		"the newest object was written again": {
			4, func(s *server) { s.skip(9); s.put("e", "") }, []string{"get e", "get c", "stream"}, true,
		},
		"deleted": {
			8, func(s *server) { s.del("e"); s.skip(2); s.put("a", "") },
			[]string{"get e", "get c", "current version", "watch 8"}, false,
		},
		"deleted, and others written": {
			8, func(s *server) { s.del("e"); s.put("c", "x"); s.put("d", "x") },
			[]string{"get e", "get c", "get d", "current version", "watch 8"}, false,
		},
		"deleted and created again": {
			8, func(s *server) { s.del("e"); s.put("e", "other") },
			[]string{"get e", "get c", "current version", "watch 8"}, false,
		},
	} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, nil, nil)
			w.puts("a", "b", "c", "d", "c")
			w.server.put("e", "first")
			w.server.skip(2)
			w.keep()
			w.server.restore(tt.backup)
			tt.change(w.server)
			w.start()
			w.until("current", func() bool {
				return w.Status().StaleSince.IsZero() && w.Status().State == reflector.Watching
			})
			w.untilCopied()
			// The state counts as current from its first bookmark on, which must follow all changes.
			got := w.got()
			if first := slices.IndexFunc(got, func(d string) bool {
				return strings.HasPrefix(d, "Bookmark")
			}); first != len(got)-1 {
				t.Errorf("the first bookmark of %q is number %d", got, first)
			}
			w.wantAsked(tt.asked...)
			found := uint64(0)
			if tt.found {
				found = 1
			}
			expect.Equal(t, w.Status().Restores, found)
			expect.Equal(t, w.Status().Lists, found)
		})
	}
}

// TestContinue_getFails lets the requests for a stored object fail. The state is continued, and
// never listed.
func TestContinue_getFails(t *testing.T) {
	for name, tt := range map[string]struct {
		faults []fault
		asked  []string
	}{
		"forbidden": {[]fault{{err: notSupported}}, []string{"get c", "current version", "watch 3"}},
		"twice": {
			[]fault{{err: internal}, {err: errReset}},
			[]string{"get c", "current version", "get c", "current version", "get c", "current version", "watch 3"},
		},
		"silent": {[]fault{{hang: true}}, []string{"get c", "current version", "get c", "current version", "watch 3"}},
		"busy": {
			[]fault{{err: busy(time.Second)}, {err: refused}, {err: busy(time.Second)}},
			[]string{
				"get c", "current version", "get c", "current version", "get c", "current version", "get c",
				"current version", "watch 3",
			},
		},
		"always": {
			[]fault{{err: internal}, {err: internal}, {err: internal}, {err: internal}},
			[]string{"get c", "current version", "get c", "current version", "get c", "current version", "watch 3"},
		},
	} {
		bubble(name, t, func(t *testing.T) {
			w := stored(t)
			w.server.put("a", "second")
			w.server.fail(gets, tt.faults...)
			w.start().untilCopied()
			w.wantAsked(tt.asked...)
			expect.Equal(t, w.Status().Lists, uint64(0))
		})
	}
}
