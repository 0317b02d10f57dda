// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "k8s.io/apimachinery/pkg/runtime/schema"

// succeed sets the predecessor of the feed, whose cluster this feed's cluster has
// replaced. A version of that cluster has another meaning here, as after a restore.
// succeed is called before the feed has a state.
func (f *Feed) succeed(before *Feed) {
	if f != nil {
		f.predecessor = before
	}
}

// inheritLocked takes over the versions of the predecessor, when the first state arrives.
func (f *Feed) inheritLocked() {
	before := f.predecessor
	f.predecessor = nil
	for ; before != nil && f.restored == nil; before = before.former() {
		f.restored = before.legacy()
	}
}

// former returns the predecessor, if this feed has never had a state.
func (f *Feed) former() *Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predecessor
}

// legacy returns what the next feed must remember of this one, or nil if this one never
// had a state.
func (f *Feed) legacy() *restore {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.now.Load(); last != nil {
		return f.legacyLocked(last)
	}
	return nil
}

// feedBefore returns the feed of a resource of the member that this one replaces.
func (m *Member) feedBefore(r schema.GroupResource) *Feed {
	if m.before == nil {
		return nil
	}
	m.before.mu.Lock()
	defer m.before.mu.Unlock()
	if x := m.before.mirrors[r]; x != nil {
		return x.feed
	}
	return m.before.feedBefore(r)
}
