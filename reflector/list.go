// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/delta"
)

// errBack is the error for a list that is older than what was seen before.
var errBack = errors.New("list is older than the last version seen")

// emptyPages is how many pages in a row may have no objects. A server may send a few, if
// it skips objects that a selector does not match.
const emptyPages = 100

// from returns the version to request a state at: none for the most recent one.
func (in *intake[T]) from(recent bool) string {
	if recent || in.back {
		return ""
	}
	return in.version
}

// findRestore sets back if the source is at an older version than was seen before. It
// checks before the most recent state is read, because objects are queued while they
// arrive, and the consumer must know how to treat older ones. back stays set until a list
// is complete: a part of a list may be queued, and the source may have passed the version
// seen before when the next one begins.
func (in *intake[T]) findRestore(ctx context.Context, recent bool) error {
	if in.back || !recent || number(in.version) == 0 {
		return nil
	}
	page, err := in.page(ctx, ListOptions{Limit: 1}, func(T) error { return nil })
	if err != nil {
		return fmt.Errorf("read the current version: %w", err)
	}
	if number(page.Version) >= number(in.version) {
		return nil
	}
	in.back = true
	in.logger.Error("the server's data has gone back: etcd was restored from a backup",
		"rv", page.Version, "seen", in.version)
	return nil
}

// check returns an error if the source has not reached the version to watch from. Such a
// source would accept the watch and send nothing until it has.
func (in *intake[T]) check(ctx context.Context) error {
	page, err := in.page(ctx, ListOptions{Version: in.version, NotOlder: true, Limit: 1}, func(T) error { return nil })
	if err == nil && number(page.Version) < number(in.version) {
		return fmt.Errorf("%w: %s after %s", errBack, page.Version, in.version)
	}
	return err
}

// page reads one page, and fails if the source is silent for too long.
func (in *intake[T]) page(ctx context.Context, opts ListOptions, each func(T) error) (Page, error) {
	quiet := listen(ctx, in.opts.Silence, time.Time{})
	defer quiet.stop()
	page, err := in.source.List(quiet.ctx, opts, func(obj T) error {
		quiet.hold()
		defer quiet.wait()
		in.heard("")
		return each(obj)
	})
	if err = quiet.cause(err); err == nil {
		in.heard("")
	}
	return page, err
}

// list reads the state in pages, with recent the most recent one.
func (in *intake[T]) list(ctx context.Context, recent bool) error {
	opts := ListOptions{Version: in.from(recent), Limit: in.opts.PageSize}
	switch {
	case in.version == "" && !recent:
		opts.Version = "0" // any state is acceptable, so the source need not read its database
	case opts.Version != "":
		// A server reads a page of an older version from its database, but a complete
		// list from its memory.
		opts.NotOlder, opts.Limit = true, 0
	}
	paged, err := in.pages(ctx, opts)
	if paged && ReasonOf(err) == Expired {
		// The list took longer than the source keeps old states: request it in one page.
		in.failed(err)
		opts.Limit = 0
		_, err = in.pages(ctx, opts)
	}
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return nil
}

// pages reads one complete list and reports whether it reached a second page.
func (in *intake[T]) pages(ctx context.Context, opts ListOptions) (bool, error) {
	relist, err := in.relist(ctx)
	if err != nil {
		return false, err
	}
	defer relist.Close()
	version, paged := "", false
	for barren := 0; ; {
		barren++
		page, err := in.page(ctx, opts, func(obj T) error {
			barren = 0
			return in.add(ctx, relist, obj)
		})
		if err != nil {
			return paged, err
		}
		for _, err := range page.Skipped {
			in.skip(relist, err)
		}
		if version == "" {
			version = page.Version
		}
		if page.Continue == "" {
			return paged, in.commit(ctx, relist, version)
		}
		if barren >= emptyPages {
			return paged, fmt.Errorf("%d pages in a row have no objects, and the list does not end", barren)
		}
		paged = true
		opts = ListOptions{Limit: opts.Limit, Continue: page.Continue}
	}
}

// relist begins a list in the queue.
func (in *intake[T]) relist(ctx context.Context) (*delta.Relist[T], error) {
	in.vague = false
	if in.back {
		return in.queue.RelistBack(ctx)
	}
	return in.queue.Relist(ctx)
}

// commit completes a list, unless it is older than what was seen before: it would delete
// newer objects that it does not have yet.
func (in *intake[T]) commit(ctx context.Context, relist *delta.Relist[T], version string) error {
	back := in.back
	if !back && number(version) < number(in.version) {
		return fmt.Errorf("%w: %s after %s", errBack, version, in.version)
	}
	if err := relist.Commit(ctx, number(version)); err != nil {
		return err
	}
	in.version = version
	in.back = false
	in.continued = false
	in.stored = comparison{}
	in.heard(version)
	in.counters.listed(in.cause, back)
	in.note(func(s *Status) {
		s.Lists++
		if back {
			s.Restores++
		}
	})
	return nil
}

// skip records an object of a list that could not be read. The object exists, so its
// known state stays. If its key could not be read either, it may be any object.
func (in *intake[T]) skip(relist *delta.Relist[T], err error) {
	in.drop(err)
	switch key, nameless := subject(err); {
	case key != "":
		relist.Keep(key)
	case !nameless && !in.back:
		// If the source has gone back, the known states may be from a future that it will
		// not have again, and must not stay.
		in.vague = true
		relist.KeepAll()
	}
}
