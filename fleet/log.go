// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"errors"
	"strings"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/wire"
)

// LogOptions returns the options of a log in which readers can wait by label, with
// [ByLabel], and by field, with [HasField].
func LogOptions() *fanout.Options[*wire.Object] {
	return logOptions(func(o *wire.Object) *wire.Object { return o })
}

// logOptions returns the same options for a log of values that have an object.
func logOptions[T any](object func(T) *wire.Object) *fanout.Options[T] {
	return &fanout.Options[T]{
		Dimensions: []fanout.Dimension[T]{{Name: ByLabel, Values: func(t T) []fanout.Value { return labelValues(object(t)) }}},
		Open:       func(name string) (fanout.Dimension[T], bool) { return openField(name, object) },
	}
}

// openCursor opens a cursor that reads everything if the log cannot open a dimension for
// the interest. The error is [fanout.ErrNoDimension], for an interest that is not in a
// field.
func openCursor[T any](l *fanout.Log[T], revision uint64, interest fanout.Interest) (*fanout.Cursor[T], error) {
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
