// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/fleet"
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
)

// writes are the writes that were passed on to one cluster and that its copy may not have
// yet. A user must not read a state from before its own write. It costs some 200 bytes for
// each user and resource until the copy has the write.
type writes struct {
	mu  sync.Mutex
	all map[writer]*written
}

// writer is a user that has written objects of a resource.
type writer struct {
	user     string
	resource schema.GroupResource
}

// written is what the copy must have before its user reads it.
type written struct {
	// version is the greatest version that a write has returned.
	version uint64
	// gone are deleted objects by key. Either the key or the UID must not be there.
	gone map[string]types.UID
	// until is when a write of unknown effect is taken for known, zero if there is none.
	until time.Time
	// late means that the copy took too long.
	late bool
}

// storedAs returns the resource that has the objects of another one too.
func storedAs(r schema.GroupResource) schema.GroupResource {
	if r.Group == "events.k8s.io" && r.Resource == "events" {
		r.Group = ""
	}
	return r
}

// add records a write.
func (w *writes) add(user string, r schema.GroupResource, effect effect) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[writer]*written{}
	}
	at := writer{user, storedAs(r)}
	one := w.all[at]
	if one == nil {
		if len(w.all) >= mostWrites {
			at.user = "" // every user waits for it
		}
		if one = w.all[at]; one == nil {
			one = &written{}
			w.all[at] = one
		}
	}
	one.version = max(one.version, effect.version)
	switch {
	case effect.unknown || len(one.gone) >= mostWrites:
		one.until = time.Now().Add(unknownWrite)
	case effect.uid != "":
		if one.gone == nil {
			one.gone = map[string]types.UID{}
		}
		one.gone[effect.key] = effect.uid
	}
}

// wait waits until the copy has the writes of a user. It returns false if the copy takes too
// long: then the cluster must answer.
func (w *writes) wait(ctx context.Context, user string, feed *fleet.Feed) bool {
	r := storedAs(feed.Resource().GroupResource())
	return w.waitFor(ctx, writer{user, r}, feed) && (user == "" || w.waitFor(ctx, writer{"", r}, feed))
}

func (w *writes) waitFor(ctx context.Context, at writer, feed *fleet.Feed) bool {
	w.mu.Lock()
	one := w.all[at]
	if one == nil {
		w.mu.Unlock()
		return true
	}
	version := one.version
	hopeless := one.late || time.Now().Before(one.until)
	w.mu.Unlock()
	if w.settle(at, feed) {
		return true
	}
	if hopeless {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, ownWrite)
	defer cancel()
	for {
		// A deletion is a change too: every change of the state can be the awaited one.
		now, err := feed.Wait(ctx, version)
		if err != nil {
			break
		}
		if w.settle(at, feed) {
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

// settle reports whether the copy has the writes of a user, and forgets them then.
func (w *writes) settle(at writer, feed *fleet.Feed) bool {
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
	if now.Version < one.version {
		return false
	}
	for key, uid := range one.gone {
		if o, ok := now.State.Get(key); ok && hasUID(o, uid) {
			return false
		}
		delete(one.gone, key)
	}
	if !one.until.IsZero() && (time.Now().Before(one.until) || !feed.Connection().StaleSince.IsZero()) {
		return false
	}
	delete(w.all, at)
	return true
}

// hasUID reports whether an object has a UID. One that cannot be decoded may have it.
func hasUID(o *wire.Object, uid types.UID) bool {
	meta, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	return err != nil || meta.UID == uid
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
			w.settle(at, feed)
			continue
		}
		w.mu.Lock()
		delete(w.all, at)
		w.mu.Unlock()
	}
}

// feedOf returns the feed that has the objects of a resource.
func feedOf(m *fleet.Member, r schema.GroupResource) (*fleet.Feed, bool) {
	feed, ok := m.Feed(r)
	if !ok && r == (schema.GroupResource{Resource: "events"}) {
		return m.Feed(schema.GroupResource{Group: "events.k8s.io", Resource: "events"})
	}
	return feed, ok
}
