// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

const (
	// ownWrite is how long a read waits for the writes of its user. After that it is
	// passed on, and so are the next ones, until the copy has caught up.
	ownWrite = time.Second
	// unknownWrite is how long reads are passed on after a write whose result does not
	// tell what to wait for, if the copy is connected.
	unknownWrite = 10 * time.Second
	// mostWrites is how many users and resources are distinguished, and how many deletions
	// of each. Beyond that the reads of all users wait, or are passed on.
	mostWrites = 10_000
	// writtenBytes and pendingBytes are what a user and resource, and a change of an object, count
	// in the budget of received notes.
	writtenBytes = 256
	pendingBytes = 256
)

// writes are the writes that were passed on to one cluster and that its copy may not have
// yet. A user must not read a state from before its own write. It costs some 200 bytes for
// each user and resource until the copy has the write.
type writes struct {
	mu  sync.Mutex
	all map[writer]*written
	// number is that of the last write. It is never used again: a reader that has seen the
	// writes up to a number must not take later ones for them.
	number uint64
	// budget bounds the bytes of the notes of other replicas, nil for the writes of this one.
	// Notes that do not fit are refused.
	budget *respond.Budget
	// closed means that the cluster has left, and that nothing is recorded any more.
	closed bool
}

// writer is a user that has written objects of a resource.
type writer struct {
	user     string
	resource schema.GroupResource
}

// written is what the copy must have before its user reads it.
type written struct {
	// number is that of the last write.
	number uint64
	// version is the greatest version that a write has returned.
	version uint64
	// objects are changed objects by key.
	objects map[string]*pending
	// until is when a write of unknown effect is taken for known, zero if there is none.
	until time.Time
	// late means that the copy took too long.
	late bool
	// expires is when everything is taken for known, zero for the writes of this replica.
	expires time.Time
	// bytes is what is taken from the budget.
	bytes int
}

// pending is a change that the copy may not have yet.
type pending struct {
	change
	// number is that of the write.
	number uint64
	// until is when the change is taken for known, zero if the copy will tell.
	until time.Time
}

// bytes returns what the change counts in the budget.
func (c *change) bytes() int { return pendingBytes + len(c.key) + len(c.uid) + len(c.version) }

// add records a write to a resource that a feed has. It returns false if the write does not fit
// into the budget.
func (w *writes) add(user string, feed *history.Feed, effect effect) bool {
	for i := range effect.objects {
		if c := &effect.objects[i]; c.uid == "" {
			c.uid = uidOf(feed, c.key)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return true
	}
	if w.all == nil {
		w.all = map[writer]*written{}
	}
	at := writer{user, view.StoredAs(feed.Resource().GroupResource())}
	taken, ok := w.takeLocked(at, effect)
	if !ok {
		return false
	}
	one := w.all[at]
	if one == nil {
		if len(w.all) >= mostWrites && w.budget == nil {
			at.user = "" // every user waits for it
		}
		if one = w.all[at]; one == nil {
			one = &written{bytes: writtenBytes}
			w.all[at] = one
			taken -= writtenBytes
		}
	}
	w.number++
	bytes := one.bytes
	one.add(effect, w.number)
	if w.budget != nil {
		one.expires = time.Now().Add(receivedLife)
		w.budget.Release(at.user, taken-(one.bytes-bytes))
	}
	return true
}

// takeLocked takes from the budget what a write needs at most. It returns false if it does not fit.
func (w *writes) takeLocked(at writer, e effect) (taken int, ok bool) {
	if w.budget == nil {
		return 0, true
	}
	need := 0
	if w.all[at] == nil {
		need = writtenBytes
	}
	for i := range e.objects {
		need += e.objects[i].bytes()
	}
	if taken = w.budget.Take(at.user, need); taken < need {
		w.budget.Release(at.user, taken)
		return 0, false
	}
	return taken, true
}

// dropLocked forgets the writes of a user.
func (w *writes) dropLocked(at writer, one *written) {
	delete(w.all, at)
	if w.budget != nil {
		w.budget.Release(at.user, one.bytes)
	}
}

// uidOf returns the UID of an object in the copy, "" if it does not have the object.
func uidOf(feed *history.Feed, key string) types.UID {
	now, err := feed.Now()
	if err != nil {
		return ""
	}
	o, ok := now.State.Get(key)
	if !ok {
		return ""
	}
	meta, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if err != nil {
		return ""
	}
	return meta.UID
}

func (w *written) add(e effect, number uint64) {
	w.number = number
	w.version = max(w.version, e.version)
	if e.unknown || len(w.objects)+len(e.objects) > mostWrites {
		w.until = time.Now().Add(unknownWrite)
		return
	}
	if w.objects == nil {
		w.objects = map[string]*pending{}
	}
	for _, c := range e.objects {
		p := &pending{change: c, number: w.number}
		if c.uid == "" || c.kind == moved { // a conflict can have other reasons too
			p.until = time.Now().Add(unknownWrite)
		}
		if former := w.objects[c.key]; former != nil {
			w.bytes -= former.bytes()
		}
		w.objects[c.key] = p
		w.bytes += p.bytes()
	}
}

// wait waits until the copy has the writes of a user. It returns false if the copy takes too
// long: then the cluster must answer.
func (w *writes) wait(ctx context.Context, user string, feed *history.Feed) bool {
	r := view.StoredAs(feed.Resource().GroupResource())
	return w.waitFor(ctx, writer{user, r}, feed) && (user == "" || w.waitFor(ctx, writer{"", r}, feed))
}

func (w *writes) waitFor(ctx context.Context, at writer, feed *history.Feed) bool {
	// A read waits for the writes before it. Later ones could keep it waiting forever.
	before, ok := w.before(at)
	if !ok || w.settle(at, before, feed) {
		return true
	}
	if before.late || time.Now().Before(before.until) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ownWrite)
	defer cancel()
	for version := before.version; ; {
		// A deletion is a change too: every change of the state can be the awaited one.
		now, err := feed.Wait(ctx, version)
		if err != nil {
			break
		}
		if w.settle(at, before, feed) {
			return true
		}
		version = now.Version + 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[at]; one != nil && ctx.Err() == context.DeadlineExceeded {
		one.late = true
	}
	return false
}

// before returns the writes of a user until now, without the objects. It returns false if
// there are none.
func (w *writes) before(at writer) (written, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[at]
	if one == nil {
		return written{}, false
	}
	return written{
		number: one.number, version: one.version, until: one.until, late: one.late, expires: one.expires,
	}, true
}

// settle reports whether the copy has the writes of a user until some time. It forgets them
// then.
func (w *writes) settle(at writer, before written, feed *history.Feed) bool {
	now, err := feed.Now()
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.all[at]
	if one == nil {
		return true
	}
	passed := func(until time.Time) bool {
		return time.Now().After(until) && feed.Connection().StaleSince.IsZero()
	}
	expired := !before.expires.IsZero() && passed(before.expires)
	if now.Version < before.version && !expired {
		return false
	}
	for key, p := range one.objects {
		if p.number > before.number {
			continue
		}
		if o, _ := now.State.Get(key); !expired && !p.isIn(o) && (p.until.IsZero() || !passed(p.until)) {
			return false
		}
		delete(one.objects, key)
		one.bytes -= p.bytes()
		if w.budget != nil {
			w.budget.Release(at.user, p.bytes())
		}
	}
	if !before.until.IsZero() && !passed(before.until) {
		return false
	}
	if one.late = false; one.number == before.number {
		w.dropLocked(at, one)
	}
	return true
}

// sweep forgets the writes that the copy has, whether or not they are read, and those of
// resources that are not mirrored any more.
func (w *writes) sweep(m *fleet.Member) {
	w.mu.Lock()
	all := make([]writer, 0, len(w.all))
	for at := range w.all {
		all = append(all, at)
	}
	w.mu.Unlock()
	for _, at := range all {
		if feed, ok := feedOf(m, at.resource); ok {
			if before, ok := w.before(at); ok {
				w.settle(at, before, feed)
			}
			continue
		}
		w.mu.Lock()
		if one := w.all[at]; one != nil {
			w.dropLocked(at, one)
		}
		w.mu.Unlock()
	}
}

// close forgets all writes, and records no others.
func (w *writes) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for at, one := range w.all {
		w.dropLocked(at, one)
	}
}

// feedOf returns the feed that has the objects of a resource.
func feedOf(m *fleet.Member, r schema.GroupResource) (*history.Feed, bool) {
	feed, ok := m.Feed(r)
	if !ok && r == (schema.GroupResource{Resource: "events"}) {
		return m.Feed(schema.GroupResource{Group: "events.k8s.io", Resource: "events"})
	}
	return feed, ok
}
