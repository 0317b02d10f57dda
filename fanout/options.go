// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import (
	"time"

	"github.com/watershed-project/watershed/store"
)

// Options tune a [Log]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Count is how many changes the window holds at most. Default 10,000.
	Count int
	// Bytes limits the size of the window, as computed by Size. The newest changes, an
	// eighth of it, are kept in any case. Default 64 MiB.
	Bytes int64
	// Size returns the cost of keeping a change, in bytes. Default: 0, so that Bytes has
	// no effect.
	Size func(store.Change[T]) int
	// Age is how long a change is kept at most. Default 5 minutes.
	Age time.Duration
	// Dimensions are what readers can be interested in besides keys.
	Dimensions []Dimension[T]
	// Open, if it is not nil, is called when a reader is the first to name a dimension.
	// It returns that dimension, or false. A log opens at most 64 and keeps them, 300
	// bytes each. A dimension without waiting readers adds no cost to a change.
	Open func(name string) (Dimension[T], bool)
}

func (o *Options[T]) withDefaults() Options[T] {
	var opts Options[T]
	if o != nil {
		opts = *o
	}
	if opts.Count <= 0 {
		opts.Count = 10_000
	}
	if opts.Bytes <= 0 {
		opts.Bytes = 64 << 20
	}
	if opts.Age <= 0 {
		opts.Age = 5 * time.Minute
	}
	return opts
}
