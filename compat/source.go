// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// source is what a ListerWatcher lists and watches, as bytes: as the server sent
// them if there is a [Tap] in its client, else encoded again.
type source struct {
	lister    cache.ListerWatcherWithContext
	prototype *prototype
	// complain is told what client-go tells a WatchErrorHandler.
	complain func(context.Context, error)
	// decoded says that the server sends what cannot be read as bytes.
	decoded atomic.Bool
}

var _ reflector.Source[*wire.Object] = (*source)(nil)

// maxSkipped bounds what is told of objects that cannot be read.
const maxSkipped = 10_000

// List reads one page. See [reflector.Source].
func (s *source) List(ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error) (reflector.Page, error) {
	r := &reading{request: request{doing: "list " + s.prototype.String()}, each: each}
	err := s.list(ctx, opts, r)
	if err == nil || r.stopped || ctx.Err() != nil {
		return r.page, err
	}
	newest := opts.Version == "" && opts.Continue == ""
	switch reason := reflector.ReasonOf(err); {
	case (reason == reflector.Expired || reason == reflector.TooLarge) && !newest:
		// Another version is asked for instead.
	default:
		s.complain(ctx, err)
	}
	return r.page, err
}

func (s *source) list(ctx context.Context, opts reflector.ListOptions, r *reading) error {
	options := metav1.ListOptions{Limit: opts.Limit, Continue: opts.Continue, ResourceVersion: opts.Version}
	if opts.NotOlder {
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	call := s.call(ctx, false)
	list, err := s.lister.ListWithContext(call.context(ctx), options)
	if a := call.answer(); a != nil {
		defer a.close()
		return s.readList(ctx, a, r)
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	return s.takeList(ctx, list, r)
}

// reading is a page being read.
type reading struct {
	request
	each func(*wire.Object) error
	page reflector.Page
	// stopped: each has failed.
	stopped bool
}

func (r *reading) add(o *wire.Object) error {
	err := r.each(o)
	r.stopped = err != nil
	return err
}

// skip notes an object that cannot be read.
func (r *reading) skip(key string, nameless bool, err error) error {
	err = r.unreadable(key, nameless, err)
	if r.page.Skipped = append(r.page.Skipped, err); len(r.page.Skipped) > maxSkipped {
		return fmt.Errorf("too many objects: %w", err)
	}
	return nil
}

// readList reads a list's bytes.
func (s *source) readList(ctx context.Context, a *answer, r *reading) error {
	reader := wire.NewListReader(a, a.encoding, s.prototype.kind)
	for {
		obj, err := reader.Next()
		var unfiled *wire.ObjectError
		switch {
		case ctx.Err() != nil:
			return r.failed(ctx, ctx.Err())
		case err == nil:
			err = r.add(obj)
		case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
			a.drain()
			m := reader.Meta()
			r.page.Version, r.page.Continue = m.ResourceVersion, m.Continue
			return nil
		case errors.As(err, &unfiled):
			err = r.skip(unfiled.Key, unfiled.Nameless(), err)
		default:
			s.unread(a, err)
			err = r.failed(ctx, err)
		}
		if err != nil {
			return err
		}
	}
}

// unread is told why an answer could not be read to its end. If the server sent
// all of it, the client may understand what we do not.
func (s *source) unread(a *answer, err error) {
	if a.failed == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.decoded.Store(true)
	}
}

// takeList encodes the objects of a list that a client has decoded.
func (s *source) takeList(ctx context.Context, list runtime.Object, r *reading) error {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return r.failed(ctx, err)
	}
	r.page.Version, r.page.Continue = m.GetResourceVersion(), m.GetContinue()
	return meta.EachListItem(list, func(item runtime.Object) error {
		if ctx.Err() != nil {
			return r.failed(ctx, ctx.Err())
		}
		o, err := s.prototype.encode(item)
		if err != nil {
			key, nameless := identify(item)
			return r.skip(key, nameless, err)
		}
		return r.add(o)
	})
}

// identify returns the key of an object, and whether it is known to have none.
func identify(obj any) (key string, nameless bool) {
	key, err := storeKey(obj)
	return key, err == nil && key == ""
}

// keyOf is an object's key if it has one.
func keyOf(obj any) string {
	key, _ := storeKey(obj)
	return key
}

// Watch begins a watch. See [reflector.Source].
func (s *source) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	r := request{doing: "watch " + s.prototype.String(), initialEvents: opts.InitialEvents}
	options := metav1.ListOptions{Watch: true, AllowWatchBookmarks: true, ResourceVersion: opts.Version}
	if opts.Timeout > 0 {
		seconds := int64((opts.Timeout + time.Second - 1) / time.Second)
		options.TimeoutSeconds = &seconds
	}
	if opts.InitialEvents {
		yes := true
		options.SendInitialEvents = &yes
		options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	call := s.call(ctx, true)
	w, err := s.lister.WatchWithContext(call.context(ctx), options)
	if a := call.answer(); a != nil {
		if err == nil && w != nil {
			w.Stop() // nothing is left in it
		}
		return &bytesWatch{request: r, ctx: ctx, source: s, answer: a, reader: wire.NewWatchReader(a, a.encoding, s.prototype.kind)}, nil
	}
	if err == nil {
		return newValueWatch(ctx, r, s.prototype, w), nil
	}
	err = r.failed(ctx, err)
	switch reflector.ReasonOf(err) {
	case reflector.Busy, reflector.Refused:
	default:
		// A state that cannot be streamed is listed: that is no complaint.
		if !opts.InitialEvents && ctx.Err() == nil {
			s.complain(ctx, err)
		}
	}
	return nil, err
}

// Served asks for a list of nothing much. See [reflector.Source].
func (s *source) Served(ctx context.Context) (bool, error) {
	_, err := s.List(ctx, reflector.ListOptions{Version: "0", Limit: 1}, func(*wire.Object) error { return nil })
	if reflector.ReasonOf(err) == reflector.NotServed {
		return false, nil
	}
	return err == nil, err
}

// call prepares a call to the ListerWatcher: nil if its answer is not wanted as
// bytes.
func (s *source) call(ctx context.Context, watch bool) *call {
	if s.decoded.Load() {
		return nil
	}
	return &call{asked: ctx, watch: watch, reads: s.prototype.reads}
}
