// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authn

import "container/list"

// lru is a map that keeps the entries that were used last, at most a number of entries
// and of bytes. An entry takes about 200 bytes besides its value. Its owner locks it.
type lru[K comparable, V any] struct {
	maxEntries, maxBytes int

	bytes   int
	entries map[K]*list.Element
	order   *list.List // of *lruEntry, the last used first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

func newLRU[K comparable, V any](maxEntries, maxBytes int) *lru[K, V] {
	return &lru[K, V]{maxEntries: maxEntries, maxBytes: maxBytes, entries: map[K]*list.Element{}, order: list.New()}
}

// get returns a value and marks it as used.
func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := l.entries[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

// put sets a value of about so many bytes and evicts others to make room for it. A value
// that is larger than the whole map is not kept.
func (l *lru[K, V]) put(key K, value V, bytes int) {
	l.remove(key)
	if bytes > l.maxBytes {
		return
	}
	l.entries[key] = l.order.PushFront(&lruEntry[K, V]{key: key, value: value, bytes: bytes})
	l.bytes += bytes
	for len(l.entries) > l.maxEntries || l.bytes > l.maxBytes {
		l.remove(l.order.Back().Value.(*lruEntry[K, V]).key)
	}
}

func (l *lru[K, V]) remove(key K) {
	if e, ok := l.entries[key]; ok {
		l.bytes -= l.order.Remove(e).(*lruEntry[K, V]).bytes
		delete(l.entries, key)
	}
}
