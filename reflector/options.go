// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"log/slog"
	"time"
)

// Options tune a [Reflector]. The zero value, and nil, are the defaults.
type Options struct {
	// PageSize is how many objects to request per page of a list. Default 500.
	PageSize int64
	// ListOnly disables reading the state as a stream.
	ListOnly bool
	// Turn, if it is not nil, is called before the whole state is read, and may wait
	// until that is allowed. The reflector calls done when the state has been read or
	// reading it has failed. Default: no wait.
	Turn func(context.Context) (done func(), err error)
	// Reopen opens a new watch after a streamed state, instead of following the stream. A
	// server that compresses the state also compresses the events after it, and
	// decompression takes 40 KB for as long as the watch lasts. It is for programs with
	// thousands of watches.
	Reopen bool
	// Timeout is how long a watch may last: the source is asked to end it after a random
	// time between once and twice this. Default 5 minutes.
	Timeout time.Duration
	// Silence is how long a list may receive nothing before it counts as dead. The same
	// limit applies to a watch without events and bookmarks, once it has received a
	// bookmark. Kubernetes sends a bookmark every minute. Default 150 seconds.
	Silence time.Duration
	// Backoff limits the first wait after a failure, which is a random time below it. The
	// second wait begins with Backoff; the waits double, up to MaxBackoff, and each is
	// stretched by a random factor of up to two. After a watch that had news or lasted a
	// second, the next failure counts as the first, and the loss of that watch's connection
	// is not followed by a wait. Default 0.8 seconds.
	Backoff time.Duration
	// MaxBackoff limits the waits before they are stretched. Default 30 seconds.
	MaxBackoff time.Duration
	// Absence is for how long every answer of [Source.Served] must be that the source
	// does not have the resource before its known objects are deleted. Until then they
	// are kept, and [Status.StaleSince] is set. Less than 0 keeps them until the next
	// complete list. Default 30 seconds.
	Absence time.Duration
	// Park is the interval at which to ask whether a parked resource is back, stretched
	// at random by up to a quarter. While objects of the resource are known, the first
	// intervals are shorter, as after a failure. Default 10 seconds.
	Park time.Duration
	// Counters, if it is not nil, counts the work of all reflectors that have it in their
	// options. Default: the reflector has its own.
	Counters *Counters
	// Logger receives state changes (Info), failures that will be retried (Warn) and
	// restores of the source (Error). Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.PageSize <= 0 {
		opts.PageSize = 500
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&opts.Timeout, 5 * time.Minute},
		{&opts.Silence, 150 * time.Second},
		{&opts.Backoff, 800 * time.Millisecond},
		{&opts.MaxBackoff, 30 * time.Second},
		{&opts.Park, 10 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if opts.Absence == 0 {
		opts.Absence = 30 * time.Second
	}
	if opts.Counters == nil {
		opts.Counters = new(Counters)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}
