// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "time"

// leave ends the member and takes its objects out of the collections.
func (m *Member) leave() {
	if before := m.takeBefore(); before != nil {
		before.leave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = time.Now()
	for at, x := range m.mirrors {
		m.endLocked(at, x)
	}
	m.end()
}

// retire ends the member, whose objects stay readable until another has its place.
func (m *Member) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = time.Now()
	for _, x := range m.next {
		m.stop(x, false)
	}
	clear(m.next)
	for _, x := range m.mirrors {
		m.stop(x, true)
	}
	m.end()
}

// takeBefore is the member whose place this one has, if nobody took it before.
func (m *Member) takeBefore() *Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.before
	m.before = nil
	return before
}

// replaces reports whether there is something left of the member before.
func (m *Member) replaces() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.before != nil
}

// succeedBefore takes out what is left of the member of that name before, once
// everything of this one is there.
func (m *Member) succeedBefore() {
	if !m.replaces() {
		return
	}
	if s := m.Status(); s.State == Live || s.State == Stale {
		if before := m.takeBefore(); before != nil {
			before.leave()
		}
	}
}
