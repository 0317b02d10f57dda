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

// from returns the version to request a list at.
func (r *Reflector[T]) from() string {
	if r.plan.recent || r.back {
		return ""
	}
	return r.version
}

// wentBack reports whether the source is at an older version than was seen before. It
// checks before the most recent state is read, because objects are queued while they
// arrive, and the consumer must know how to treat older ones. The result stays true until
// a list is complete: a part of a list may be queued, and the source may have passed the
// version seen before when the next one begins.
func (r *Reflector[T]) wentBack(ctx context.Context) (bool, error) {
	if r.back || !r.plan.recent || number(r.version) == 0 {
		return r.back, nil
	}
	page, err := r.page(ctx, ListOptions{Limit: 1}, func(T) error { return nil })
	if err != nil {
		return false, fmt.Errorf("ask for the current version: %w", err)
	}
	if number(page.Version) >= number(r.version) {
		return false, nil
	}
	r.back = true
	r.opts.Logger.Error("the server's data has gone back: etcd was restored from a backup",
		"rv", page.Version, "seen", r.version)
	return true, nil
}

// check returns an error if the source has not reached the version to watch from. Such a
// source would accept the watch and send nothing until it has.
func (r *Reflector[T]) check(ctx context.Context) error {
	page, err := r.page(ctx, ListOptions{Version: r.version, NotOlder: true, Limit: 1}, func(T) error { return nil })
	if err == nil && number(page.Version) < number(r.version) {
		return fmt.Errorf("%w: %s after %s", errBack, page.Version, r.version)
	}
	return err
}

// page reads one page, and fails if the source is silent for too long.
func (r *Reflector[T]) page(ctx context.Context, opts ListOptions, each func(T) error) (Page, error) {
	quiet := listen(ctx, r.opts.Silence, time.Time{})
	defer quiet.stop()
	page, err := r.source.List(quiet.ctx, opts, func(obj T) error {
		quiet.hold()
		defer quiet.wait()
		r.heard("")
		return each(obj)
	})
	if err = quiet.cause(err); err == nil {
		r.heard("")
	}
	return page, err
}

// list reads the state in pages.
func (r *Reflector[T]) list(ctx context.Context, back bool) error {
	opts := ListOptions{Version: r.from(), Limit: r.opts.PageSize}
	switch {
	case r.version == "" && !r.plan.recent:
		opts.Version = "0" // any state is acceptable, so the source need not read its database
	case opts.Version != "":
		// A server reads a page of an older version from its database, but a complete
		// list from its memory.
		opts.NotOlder, opts.Limit = true, 0
	}
	paged, err := r.pages(ctx, opts, back)
	if paged && ReasonOf(err) == Expired {
		// The list took longer than the source keeps old states: request it in one page.
		r.failed(err)
		opts.Limit = 0
		_, err = r.pages(ctx, opts, back)
	}
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	return nil
}

// pages reads one complete list and reports whether it reached a second page.
func (r *Reflector[T]) pages(ctx context.Context, opts ListOptions, back bool) (bool, error) {
	relist, err := r.relist(ctx, back)
	if err != nil {
		return false, err
	}
	defer relist.Close()
	version, paged := "", false
	for {
		page, err := r.page(ctx, opts, func(obj T) error {
			return r.add(ctx, relist, obj)
		})
		if err != nil {
			return paged, err
		}
		for _, err := range page.Skipped {
			r.skip(relist, err)
		}
		if version == "" {
			version = page.Version
		}
		if page.Continue == "" {
			return paged, r.commit(ctx, relist, version, back)
		}
		paged = true
		opts = ListOptions{Limit: opts.Limit, Continue: page.Continue}
	}
}

func (r *Reflector[T]) relist(ctx context.Context, back bool) (*delta.Relist[T], error) {
	r.vague = false
	if back {
		return r.queue.RelistBack(ctx)
	}
	return r.queue.Relist(ctx)
}

// commit completes a list, unless it is older than what was seen before: it would delete
// newer objects that it does not have yet.
func (r *Reflector[T]) commit(ctx context.Context, relist *delta.Relist[T], version string, back bool) error {
	if !back && number(version) < number(r.version) {
		return fmt.Errorf("%w: %s after %s", errBack, version, r.version)
	}
	if err := relist.Commit(ctx, number(version)); err != nil {
		return err
	}
	r.version, r.back, r.barren = version, false, 0
	r.heard(version)
	r.note(func(s *Status) {
		s.Lists++
		if back {
			s.Restores++
		}
	})
	return nil
}

// skip records an object of a list that could not be read. The object exists, so its
// known state stays. If its key could not be read either, it may be any object.
func (r *Reflector[T]) skip(relist *delta.Relist[T], err error) {
	r.drop(err)
	switch key, nameless := subject(err); {
	case key != "":
		relist.Keep(key)
	case !nameless && !r.back:
		// If the source has gone back, the known states may be from a future that it will
		// not have again, and must not stay.
		r.vague = true
		relist.KeepAll()
	}
}

// subject returns the key of the object that an error concerns, "" if it is not known,
// and whether the object has no key.
func subject(err error) (key string, nameless bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.Key, e.Nameless
	}
	return "", false
}

// add queues one object of a list.
func (r *Reflector[T]) add(ctx context.Context, relist *delta.Relist[T], obj T) error {
	r.holds = true
	return r.keep(ctx, relist.Add(ctx, obj))
}

// keep returns a queue error that ends the reflector, and records one that concerns only
// a single object.
func (r *Reflector[T]) keep(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, delta.ErrClosed) {
		return err
	}
	r.drop(err)
	return nil
}
