// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// wantDropped checks the number of dropped objects and the reason of the last one.
func (w *world) wantDropped(n uint64, reason string) {
	w.t.Helper()
	s := w.Status()
	expect.Equal(w.t, s.Dropped, n)
	if s.Err == nil || !strings.Contains(s.Err.Error(), reason) {
		w.t.Errorf("Err is %v, want %q", s.Err, reason)
	}
	expect.Equal(w.t, s.Failures, 0)
}

func TestDrop_undecodableEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a")
		w.server.fail(watches, fault{first: []item{unreadable(delta.Added, "", ""), unreadable(delta.Updated, "", "")}})
		w.start().let(time.Second)
		w.wantDropped(2, "no such wire type")
		expect.Equal(t, w.queue.HasSynced(), true)

		w.server.send(unreadable(delta.Updated, "", ""))
		w.puts("b")
		w.let(time.Second)
		w.wantDropped(3, "no such wire type")
		w.wantGot("Replaced a@1", "Bookmark 1", "Added b@2")
		w.wantAsked("stream")
	})
}

func TestDrop_undecodableObjectsOfAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(2), nil)
		w.puts("a", "b", "c")
		w.server.fail(lists, fault{skipped: 2}, fault{})
		w.start().let(time.Second)
		w.wantDropped(2, "garbled")
		w.wantGot("Replaced c@3", "Bookmark 3")
		expect.Equal(t, w.queue.HasSynced(), true)
	})
}

// TestDrop_whatCannotBeReadIsNotGone: an unreadable object still exists.
func TestDrop_whatCannotBeReadIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(10), nil)
		w.puts("a", "b", "c")
		w.server.fail(lists, fault{}, fault{skipped: 1, skippedKey: "a"})
		w.start().let(time.Second)
		w.server.del("b")
		w.server.send(item{err: expired})
		w.let(time.Minute)
		expect.Equal(t, w.Status().Dropped, 1)
		_, ok := w.store.Get("a")
		expect.Equal(t, ok, true)
		expect.Equal(t, w.store.Snapshot().Len(), 2)
	})
}

func TestDrop_objectsWithoutAKey(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: only}, nil)
			w.puts("", "a")
			w.start().let(time.Second)
			w.wantDropped(1, "no key")
			expect.Equal(t, w.queue.HasSynced(), true)
			w.puts("", "b")
			w.server.del("")
			w.let(time.Second)
			w.wantDropped(3, "no key")
			w.wantGot("Replaced a@2", "Bookmark 2", "Added b@4")
			// The version is after them, so that they are not sent again.
			expect.Equal(t, w.Status().Version, "5")
		})
	}
}

func TestDrop_objectsThatTheTransformRefuses(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, &reflector.Options{ListOnly: only},
				&delta.Options[pod]{Transform: func(p pod) (pod, error) {
					if p.Text == "bad" {
						return p, errors.New("cannot make that better")
					}
					return p, nil
				}})
			w.server.put("a", "bad")
			w.puts("b", "c")
			w.start().let(time.Second)
			w.wantDropped(1, "cannot make that better")
			expect.Equal(t, w.queue.HasSynced(), true)

			w.server.put("b", "bad")
			w.puts("c")
			w.let(time.Second)
			w.wantDropped(2, "cannot make that better")
			w.wantGot("Replaced b@2", "Replaced c@3", "Bookmark 3", "Updated c@5")

			// The object is outdated in the copy, but not deleted.
			w.server.send(item{err: expired})
			w.let(time.Second)
			w.wantGot("Replaced c@5", "Bookmark 5")
			if _, ok := w.store.Get("b"); !ok {
				t.Error("b is gone")
			}
			expect.Equal(t, w.Status().Dropped, 4)
		})
	}
}

func TestDrop_eventsOfAnUnknownType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.skip(1)
		w.server.send(item{event: event(99, pod{Name: "a", Version: 4})})
		w.puts("b")
		w.let(time.Second)
		w.wantDropped(1, "unknown type 99")
		w.wantGot("Updated b@5")
	})
}

func TestDelete_ofAnUnknownObjectIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.skip(1)
		w.server.send(item{event: event(delta.Deleted, pod{Name: "z", Version: 4})})
		w.let(time.Second)
		w.wantGot()
		expect.Equal(t, w.Status().Dropped, 0)
		expect.Equal(t, w.Status().Version, "4")
	})
}

// unreadable returns an event whose object cannot be read.
func unreadable(typ delta.Type, key, version string) item {
	return item{
		event: reflector.Event[pod]{Type: typ, Version: version},
		err:   &reflector.Error{Reason: reflector.Undecodable, Key: key, Err: errors.New("no such wire type")},
	}
}

// TestDelete_thatCannotBeReadDeletes: the object is gone, whatever its final state was.
func TestDelete_thatCannotBeReadDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.skip(1)
		w.server.send(unreadable(delta.Deleted, "b", "4"))
		w.let(time.Second)
		w.wantGot("Deleted b@2 (missed)")
		w.wantDropped(1, "no such wire type")
		expect.Equal(t, w.Status().Version, "4")
		w.wantAsked()
		_, ok := w.store.Get("b")
		expect.Equal(t, ok, false)
	})
}

func TestDelete_thatCannotBeReadMayBeOfAnUnknownObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.server.skip(1)
		w.server.send(unreadable(delta.Deleted, "z", "4"))
		w.let(time.Second)
		w.wantGot()
		expect.Equal(t, w.Status().Version, "4")
		w.wantAsked()
	})
}

// TestDelete_ofAnUnreadableKeyIsFoundByAList: the event does not identify the object.
func TestDelete_ofAnUnreadableKeyIsFoundByAList(t *testing.T) {
	for name, tt := range map[string]struct {
		typ     delta.Type
		version string
		asked   []string
	}{
		"deleted":            {delta.Deleted, "4", []string{"stream 4"}},
		"deleted somewhen":   {delta.Deleted, "", []string{`list "", limit 1`, "stream"}},
		"something happened": {0, "", []string{`list "", limit 1`, "stream"}},
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.delUnseen("b")
			w.server.send(unreadable(tt.typ, "", tt.version))
			w.let(time.Second)
			w.wantAsked(tt.asked...)
			w.wantGot("Replaced a@1", "Replaced c@3", "Deleted b@2 (missed)", "Bookmark 4")
		})
	}
}

// TestDelete_thatCannotBeReadWhileStreaming: the object was listed before it was deleted.
func TestDelete_thatCannotBeReadWhileStreaming(t *testing.T) {
	for name, key := range map[string]string{"known": "z", "unknown": ""} {
		bubble(name, t, func(t *testing.T) {
			w := newWorld(t, nil, nil)
			w.puts("a")
			gone := pod{Name: "z", Version: 1}
			w.server.fail(watches, fault{
				first: []item{{event: event(delta.Added, gone)}, unreadable(delta.Deleted, key, "1")},
			})
			w.start().untilCopied()
			expect.Equal(t, w.store.Snapshot().Len(), 1)
		})
	}
}

// TestStream_whoseEndCannotBeReadIsListed: no other end of the initial events will come.
func TestStream_whoseEndCannotBeReadIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.puts("a")
		w.server.fail(watches, fault{first: []item{unreadable(delta.Bookmark, "", "")}, deaf: true, after: 1})
		w.start().let(2 * time.Second)
		w.wantCopy()
		expect.Equal(t, w.queue.HasSynced(), true)
	})
}

// TestDrop_unreadableStatesMoveTheVersion: otherwise they would be sent again.
func TestDrop_unreadableStatesMoveTheVersion(t *testing.T) {
	for _, typ := range []delta.Type{delta.Added, delta.Updated, delta.Bookmark} {
		bubble(typ.String(), t, func(t *testing.T) {
			w := watching(t, nil)
			w.server.skip(1)
			w.server.send(unreadable(typ, "", "4"))
			w.let(time.Second)
			w.wantGot()
			w.wantAsked()
			w.wantDropped(1, "no such wire type")
			expect.Equal(t, w.Status().Version, "4")
		})
	}
}

// TestDrop_ofAnUnreadableKeyIsNoReasonToDelete: it may be any of the known objects.
func TestDrop_ofAnUnreadableKeyIsNoReasonToDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, listOnly(10), nil)
		w.puts("a", "b", "c")
		w.server.fail(lists, fault{}, fault{skipped: 1})
		w.start().let(time.Second)
		w.got()
		w.server.send(item{err: expired})
		w.let(time.Second)
		w.wantGot("Replaced b@2", "Replaced c@3", "Bookmark 3")
		_, ok := w.store.Get("a")
		expect.Equal(t, ok, true)
		// A readable list finds deleted objects, at the latest after the end of the
		// watch.
		w.server.delUnseen("a")
		w.let(11 * time.Minute)
		w.wantCopy()
	})
}
