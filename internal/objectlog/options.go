// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package objectlog

import (
	"errors"
	"strings"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Options returns the options of a log of objects whose window has some bytes.
func Options(window int64) *fanout.Options[*wire.Object] {
	return OptionsOf(window, func(o *wire.Object) *wire.Object { return o })
}

// OptionsOf returns the same options for a log of values that have an object.
func OptionsOf[T any](window int64, object func(T) *wire.Object) *fanout.Options[T] {
	return &fanout.Options[T]{
		Age:   MaxAge,
		Bytes: window,
		Count: max(10_000, int(window>>10)),
		Size:  func(c store.Change[T]) int { return size(c.Type, object(c.Old), object(c.New)) },
		Dimensions: []fanout.Dimension[T]{
			{Name: ByLabel, Values: func(t T) []fanout.Value { return labelValues(object(t)) }},
		},
		Open: func(name string) (fanout.Dimension[T], bool) { return openField(name, object) },
	}
}

// Cursor opens a cursor that reads everything if the log cannot open a dimension for
// the interest. The error is [fanout.ErrNoDimension], for an interest that is not in a
// field.
func Cursor[T any](l *fanout.Log[T], revision uint64, interest fanout.Interest) (*fanout.Cursor[T], error) {
	c, err := l.Cursor(revision, interest)
	if errors.Is(err, fanout.ErrNoDimension) && strings.HasPrefix(interest.Dimension(), byField) {
		return l.Cursor(revision, fanout.Everything())
	}
	return c, err
}

// size returns how many bytes a change keeps from being freed: the state that it
// replaced.
func size(t delta.Type, old, now *wire.Object) int {
	n := 150
	if old != nil {
		n += old.Size()
	}
	if t == delta.Deleted {
		n += now.Size()
	}
	return n + n/8
}
