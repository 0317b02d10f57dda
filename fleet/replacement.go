// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/history"
)

// leave ends the member and removes its objects from the collections.
func (m *Member) leave() {
	if before := m.takeBefore(); before != nil {
		before.leave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = time.Now()
	m.mirrors.End()
	m.end()
	m.changed.Send()
}

// retire ends the member. Its objects stay readable until another member has replaced it.
func (m *Member) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = time.Now()
	m.dropLastLocked() // nothing proves that it is a state of this cluster
	m.mirrors.Retire()
	m.end()
	m.changed.Send()
}

// takeBefore returns the member that this one replaces, on the first call only.
func (m *Member) takeBefore() *Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.before
	m.before = nil
	return before
}

// Replaces reports whether another server had the member's name, and may still have its
// objects in the fleet's views under that name: this member has not synced yet.
func (m *Member) Replaces() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.before != nil
}

// succeedBefore removes the rest of the member before this one, once this one has synced.
func (m *Member) succeedBefore() {
	if !m.Replaces() {
		return
	}
	if s := m.Status(); s.State == Live || s.State == Stale {
		if before := m.takeBefore(); before != nil {
			before.leave()
		}
	}
}

// feedBefore returns the feed of a resource of the member that this one replaces. The caller holds the
// member's mu.
func (m *Member) feedBefore(r schema.GroupResource) *history.Feed {
	if m.before == nil {
		return nil
	}
	m.before.mu.Lock()
	defer m.before.mu.Unlock()
	if x := m.before.mirrors.Mirror(r); x != nil {
		return x.Feed.Feed()
	}
	return m.before.feedBefore(r)
}
