// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
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
	deltas := delta.Deltas[pod]{}
	for key, p := range w.server.state() {
		deltas = append(deltas, delta.Delta[pod]{Type: delta.Replaced, Key: key, Object: p})
	}
	w.store.Apply(append(deltas, delta.Delta[pod]{Type: delta.Bookmark, Version: 3}))
	w.Continue(3, time.Now().Add(-time.Hour))
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
			[]string{"current version", "watch 3"},
			[]string{"Updated a@4", "Deleted b@5", "Bookmark 5"}, 0,
		},
		"nothing has changed": {
			func(*server) {},
			[]string{"current version", "watch 3"},
			[]string{"Bookmark 3"}, 0,
		},
		"other resources have changed": {
			func(s *server) { s.skip(4) },
			[]string{"current version", "watch 3"},
			[]string{"Bookmark 7"}, time.Second,
		},
		"no bookmarks": {
			func(s *server) { s.skip(4); s.marks = 0 },
			[]string{"current version", "watch 3", "stream 3"},
			[]string{"Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 7"}, 3 * time.Second,
		},
		"the version has expired": {
			func(s *server) { s.put("a", "second"); s.del("b"); s.forget() },
			[]string{"current version", "watch 3", "current version", "watch 3 apart", "stream 3"},
			[]string{"Replaced a@4", "Replaced c@3", "Deleted b@2 (missed)", "Bookmark 5"}, 0,
		},
		"another server has the changes": {
			func(s *server) { s.put("a", "second"); s.fail(watches, fault{}, fault{first: []item{{err: expired}}}) },
			[]string{"current version", "watch 3", "current version", "watch 3 apart"},
			[]string{"Updated a@4", "Bookmark 4"}, 0,
		},
		"the server has gone back": {
			func(s *server) { s.restore(2) },
			[]string{"current version", `list "", limit 1`, "stream"},
			[]string{"Replaced a@1 (missed)", "Replaced b@2 (missed)", "Deleted c@3 (missed)", "Bookmark 2 (missed)"}, 0,
		},
		"no streams": {
			func(s *server) { s.put("a", "second"); s.mode = refuses },
			[]string{"current version", `list "", limit 1`, "watch 3"},
			[]string{"Updated a@4", "Bookmark 4"}, 0,
		},
		"the selector is ignored": {
			func(s *server) { s.put("a", "second"); s.careless = true },
			[]string{"current version", `list "", limit 1`, "watch 3"},
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
