// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"strings"
	"unsafe"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// dimension is a [Dimension], or one of the two by key that every log has, with the
// topics that readers wait on.
type dimension[T any] struct {
	name string
	// part returns the part of a key that counts, values all values of an object, value
	// its only one. Two of the three are nil.
	part   func(key string) (string, bool)
	values func(T) []Value
	value  func(T) Value

	topics map[Value]*topic // nil before the first
	// filter has at least the marks of the values that have a topic.
	filter filter
}

func newDimensions[T any](user []Dimension[T]) []*dimension[T] {
	all := []*dimension[T]{
		{name: byKey, part: func(key string) (string, bool) { return key, true }},
		{name: byNamespace, part: namespaceOf},
	}
	for _, d := range user {
		all = append(all, newDimension(d))
	}
	return all
}

func newDimension[T any](d Dimension[T]) *dimension[T] {
	x := &dimension[T]{name: d.Name, values: d.Values}
	if d.Values == nil {
		x.value = d.Value
	}
	return x
}

func namespaceOf(key string) (string, bool) {
	if end := strings.IndexByte(key, '/'); end >= 0 {
		return key[:end], true
	}
	return "", false
}

// markOf returns the mark of a value in the filter.
func (d *dimension[T]) markOf(value string) mark {
	if d.part != nil {
		return markOf(value)
	}
	return mark(ValueOf(value))
}

// marks yields the marks of the topics.
func (d *dimension[T]) marks(yield func(mark) bool) {
	for _, t := range d.topics {
		if !yield(t.mark) {
			return
		}
	}
}

// states returns the values of the object before and after a change. It returns none for
// a state that does not exist, or whose values are the same slice as those of the other
// state.
func (d *dimension[T]) states(c *store.Change[T]) (was, is []Value) {
	if c.Type != delta.Added {
		was = d.values(c.Old)
	}
	if c.Type != delta.Deleted {
		is = d.values(c.New)
	}
	if len(was) == len(is) && unsafe.SliceData(was) == unsafe.SliceData(is) {
		return nil, is
	}
	return was, is
}
