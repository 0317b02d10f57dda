// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package lru

import "testing"

func TestMap(t *testing.T) {
	m := New[int](3, 100, func(text string) int { return len(text) })
	value := func(bytes int) string { return string(make([]byte, bytes)) }
	for i := range 3 {
		m.Put(i, value(10))
	}
	m.Get(0)
	m.Peek(1)
	m.Put(3, value(10)) // evicts 1
	if _, ok := m.Get(1); ok || m.Len() != 3 || m.Bytes() != 30 {
		t.Errorf("after a fourth entry: %d entries, %d bytes", m.Len(), m.Bytes())
	}
	if key, _, ok := m.Oldest(); key != 2 || !ok {
		t.Errorf("the oldest entry is %d, %v", key, ok)
	}
	m.Put(0, value(85)) // evicts 2, used longest ago
	if _, ok := m.Get(2); ok || m.Bytes() != 95 || m.Len() != 2 {
		t.Errorf("after a large entry: %d entries, %d bytes", m.Len(), m.Bytes())
	}
	m.Put(4, value(101))
	if m.Len() != 2 || m.Bytes() != 95 {
		t.Errorf("after an entry that is too large: %d entries, %d bytes", m.Len(), m.Bytes())
	}
	m.Put(0, value(101))
	if _, ok := m.Peek(0); ok || m.Len() != 1 || m.Bytes() != 10 {
		t.Errorf("after a value that is too large for its key: %d entries, %d bytes", m.Len(), m.Bytes())
	}
	m.RemoveFunc(func(text string) bool { return len(text) == 10 })
	if _, _, ok := m.Oldest(); ok || m.Len() != 0 || m.Bytes() != 0 {
		t.Errorf("after the last entry: %d entries, %d bytes", m.Len(), m.Bytes())
	}
}
