// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package lru has a map that keeps the entries that were used last, within a number of entries and of
// bytes. The caches of packages authn, authz and expression are such maps.
package lru

// Map is a map that keeps the entries that were used last. An entry takes two pointers and a place in
// a Go map besides its key and its value. A Map is not safe for concurrent use: its owner locks it.
type Map[K comparable, V any] struct {
	maxEntries, maxBytes int
	size                 func(V) int

	entries map[K]*entry[K, V]
	// root closes the ring of entries: root.next was used last.
	root  entry[K, V]
	bytes int
}

type entry[K comparable, V any] struct {
	prev, next *entry[K, V]
	key        K
	value      V
}

// New returns an empty map. Size returns about how many bytes an entry takes. It must return the same
// for a value at any time.
func New[K comparable, V any](maxEntries, maxBytes int, size func(V) int) *Map[K, V] {
	m := &Map[K, V]{maxEntries: maxEntries, maxBytes: maxBytes, size: size}
	m.Clear()
	return m
}

// Get returns a value and marks it as used.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	e, ok := m.entries[key]
	if !ok {
		return value, false
	}
	e.unlink()
	m.link(e)
	return e.value, true
}

// Peek returns a value and does not mark it as used.
func (m *Map[K, V]) Peek(key K) (value V, ok bool) {
	if e, ok := m.entries[key]; ok {
		return e.value, true
	}
	return value, false
}

// Put sets a value, and evicts the entries that were not used for the longest time until the limits
// hold. It does not keep a value that is larger than the whole map.
func (m *Map[K, V]) Put(key K, value V) {
	m.Remove(key)
	bytes := m.size(value)
	if bytes > m.maxBytes {
		return
	}
	e := &entry[K, V]{key: key, value: value}
	m.entries[key] = e
	m.link(e)
	m.bytes += bytes
	for len(m.entries) > m.maxEntries || m.bytes > m.maxBytes {
		m.Remove(m.root.prev.key)
	}
}

// Oldest returns the entry that was not used for the longest time, false if the map is empty.
func (m *Map[K, V]) Oldest() (key K, value V, ok bool) {
	return m.root.prev.key, m.root.prev.value, len(m.entries) > 0
}

// Remove removes an entry if there is one.
func (m *Map[K, V]) Remove(key K) {
	if e, ok := m.entries[key]; ok {
		delete(m.entries, key)
		e.unlink()
		m.bytes -= m.size(e.value)
	}
}

// RemoveFunc removes the entries whose values match.
func (m *Map[K, V]) RemoveFunc(match func(V) bool) {
	for key, e := range m.entries {
		if match(e.value) {
			m.Remove(key)
		}
	}
	if len(m.entries) == 0 {
		m.Clear() // a Go map does not shrink
	}
}

// Clear removes all entries.
func (m *Map[K, V]) Clear() {
	m.entries, m.bytes = map[K]*entry[K, V]{}, 0
	m.root.prev, m.root.next = &m.root, &m.root
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return len(m.entries) }

// Bytes returns the size of the entries.
func (m *Map[K, V]) Bytes() int { return m.bytes }

func (m *Map[K, V]) link(e *entry[K, V]) {
	e.prev, e.next = &m.root, m.root.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
