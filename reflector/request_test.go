// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// spoil makes the copy differ from the server: a has another content, b is missing, and x
// does not exist.
func (w *world) spoil() {
	w.store.Apply([]delta.Delta[pod]{
		{Type: delta.Updated, Key: "a", Object: pod{Name: "a", Version: 1, Text: "wrong"}},
		{Type: delta.Deleted, Key: "b", Object: pod{Name: "b", Version: 2}},
		{Type: delta.Added, Key: "x", Object: pod{Name: "x", Version: 3}},
	})
}

func TestRelist_correctsTheCopy(t *testing.T) {
	for name, tt := range map[string]struct {
		only  bool
		asked []string
	}{
		"streamed": {false, []string{`list "", limit 1`, "stream"}},
		"listed":   {true, []string{`list "", limit 1`, `list "", limit 500`, "watch 3"}},
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{ListOnly: tt.only})
			before := w.Status()
			w.spoil()
			w.let(time.Second)
			w.wantGot()
			w.Relist()
			w.let(0)
			w.wantCopy()
			w.wantAsked(tt.asked...)
			w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Deleted x@3 (missed)", "Bookmark 3")
			s := w.Status()
			expect.Equal(t, s.Lists, before.Lists+1)
			expect.Equal(t, s.Failures, before.Failures)
			expect.Equal(t, s.Restores, 0)
			w.server.put("b", "later")
			w.let(0)
			w.wantGot("Updated b@4")
			w.wantCopy()
		})
	}
}

// TestRelistBack restores the server from a backup, and writes until it has passed the
// version of the copy before the reflector reconnects. The reflector cannot detect that.
func TestRelistBack_correctsACopyThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := advanced(t, nil)
		w.server.restore(3)
		for range 5 {
			w.puts("e")
		}
		w.untilState(reflector.Watching)
		w.let(time.Hour)
		if a, _ := w.store.Get("a"); a.Version != 4 || w.Status().Restores != 0 {
			t.Fatalf("the copy is corrected already: %+v, %+v", a, w.Status())
		}
		w.Relist()
		w.let(time.Second)
		if a, _ := w.store.Get("a"); a.Version != 4 {
			t.Fatalf("a list replaces a newer state: %+v", a)
		}
		w.RelistBack()
		w.let(time.Second)
		w.wantCopy()
		expect.Equal(t, w.Status().Restores, 1)
	})
}

// TestRelist_duringAList checks that a request during a list starts another one, whatever
// the first one had read.
func TestRelist_duringAList(t *testing.T) {
	for name, f := range map[string]fault{"hangs": {hang: true}, "stalls": {deaf: true, after: 1}} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: true}, nil)
			w.puts("a", "b", "c")
			w.server.fail(lists, f)
			w.start().let(time.Second)
			w.Relist()
			w.let(0)
			w.wantCopy()
			expect.Equal(t, w.Status().Failures, 0)
		})
	}
}

// TestRetry_endsTheWait corrects the cause of failures while the reflector waits for long, and
// while its last request is open. Then it does not wait.
func TestRetry_endsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{ListOnly: true, Backoff: time.Minute, MaxBackoff: time.Hour}, nil)
		w.puts("a", "b", "c")
		w.server.fail(lists, fault{err: refused}, fault{err: refused}, fault{err: refused})
		w.start()
		for w.Status().Failures < 3 {
			w.let(time.Second)
		}
		expect.Equal(t, w.Status().State, reflector.Waiting)
		w.server.fail(lists, fault{err: refused})
		w.Retry()
		w.let(0)
		expect.Equal(t, w.Status().Failures, 4)
		w.let(time.Minute) // the failure counted as the first
		w.wantCopy()
		w.puts("d")
		w.let(0)
		w.wantCopy()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{
			ListOnly: true, Backoff: time.Hour, MaxBackoff: time.Hour, Silence: time.Second,
		}, nil)
		w.puts("a", "b", "c")
		w.server.fail(lists, fault{hang: true})
		w.start().let(0)
		w.Retry()
		w.let(5 * time.Second)
		w.wantCopy()
		expect.Equal(t, w.Status().Failures, 1)
	})
}

// TestRelist_afterAFailure checks that a request does not shorten the wait after a failure,
// is not lost, and that requests before Run are kept.
func TestRelist_afterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, &reflector.Options{ListOnly: true}, nil)
		w.puts("a", "b", "c")
		w.Relist()
		w.start().untilCopied()
		w.wantAsked(`list "", limit 500`, "watch 3")
		w.server.fail(lists, fault{err: refused}, fault{err: refused})
		w.spoil()
		w.Relist()
		w.untilState(reflector.Waiting)
		w.Relist()
		w.let(0)
		expect.Equal(t, w.Status().State, reflector.Waiting)
		w.untilCopied()
		expect.Equal(t, w.Status().Failures, 2)
	})
}
