// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "k8s.io/apimachinery/pkg/runtime/schema"

// succeed makes the feed the one after another, whose cluster its own has replaced: a
// version of that cluster means something else here, as after a restore. It is called
// before the feed has a state.
func (f *Feed) succeed(before *Feed) {
	if f != nil {
		f.predecessor = before
	}
}

// inheritLocked takes over which versions are those of the feed before, when the first
// state comes.
func (f *Feed) inheritLocked() {
	before := f.predecessor
	f.predecessor = nil
	for ; before != nil && f.restored == nil; before = before.former() {
		f.restored = before.legacy()
	}
}

// former returns the feed before, if this one has never had a state.
func (f *Feed) former() *Feed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.predecessor
}

// legacy returns what the next feed has to know of this one, nil if there is nothing.
func (f *Feed) legacy() *restore {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.now.Load(); last != nil {
		return f.legacyLocked(last)
	}
	return nil
}

// feedBefore returns the feed of a resource of the member whose place this one takes.
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
