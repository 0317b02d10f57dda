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
	// PageSize is how many objects to ask for at once when listing. Default
	// 500.
	PageSize int64
	// ListOnly never asks for the state as a stream.
	ListOnly bool
	// Turn, if it is not nil, is called before the whole state is read, and may wait
	// until it is time for that. What it returns is called when the state has been
	// read or could not be. Default: it is always time.
	Turn func(context.Context) (done func(), err error)
	// Reopen begins another watch after a state that came as a stream, instead of
	// following the stream: a server that compresses the state goes on compressing
	// what follows, and undoing that takes 40 KB for as long as the watch lasts. It
	// is for who has thousands of watches.
	Reopen bool
	// Timeout is when the source is asked to end a watch: a random time between
	// once and twice this. Default 5 minutes.
	Timeout time.Duration
	// Silence is how long a list may bring nothing, or a watch on which there
	// have been bookmarks no event and no bookmark, before it counts as dead.
	// Kubernetes sends a bookmark every minute. Default 150 seconds.
	Silence time.Duration
	// Backoff is the first wait after a failure; it doubles, up to MaxBackoff,
	// and is stretched by a random factor of up to two. Two minutes without a
	// failure start it again. Default 0.8 seconds.
	Backoff time.Duration
	// MaxBackoff bounds Backoff. Default 30 seconds.
	MaxBackoff time.Duration
	// Absence is for how long every answer must be that the source does not have the
	// resource, by [Source.Served], before the objects that are known of it are
	// deleted. Until then they are kept, and the status says since when they are
	// stale. Less than 0 keeps them until the next complete list. Default 30
	// seconds.
	Absence time.Duration
	// Park is how often, at least, to ask whether a resource that vanished is back.
	// Default 10 seconds.
	Park time.Duration
	// Logger gets state changes (Info) and failures that will be retried
	// (Warn). Default: slog.Default().
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
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}
