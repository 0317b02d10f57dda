// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// source provides the objects of a ListerWatcher as bytes: as the server sent them if its
// client has a [Tap], otherwise encoded again.
type source struct {
	lister    cache.ListerWatcherWithContext
	prototype *prototype
	// complain receives the errors that client-go passes to a WatchErrorHandler.
	complain func(context.Context, error)
	// decoded is set if the server sends responses that cannot be read as bytes.
	decoded atomic.Bool
}

var _ reflector.Source[*wire.Object] = (*source)(nil)

// List reads one page. See [reflector.Source].
func (s *source) List(ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error) (reflector.Page, error) {
	stopped := false
	page, err := s.list(ctx, opts, func(o *wire.Object) error {
		err := each(o)
		stopped = err != nil
		return err
	})
	if err == nil || stopped || ctx.Err() != nil {
		return page, err
	}
	newest := opts.Version == "" && opts.Continue == ""
	switch reason := reflector.ReasonOf(err); {
	case (reason == reflector.Expired || reason == reflector.TooLarge) && !newest:
		// The reflector retries with another version.
	default:
		s.complain(ctx, err)
	}
	return page, err
}

func (s *source) list(ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error) (reflector.Page, error) {
	r := newRequest("list", s.prototype)
	call := s.call(ctx, false)
	list, err := s.lister.ListWithContext(call.context(ctx), listwatch.ListOptions(opts))
	if a := call.answer(); a != nil {
		defer a.close()
		return listwatch.ReadList(r.Request, &body{request: r, ctx: ctx, source: s, answer: a}, a.encoding, s.prototype.kind, each)
	}
	if err != nil {
		return reflector.Page{}, r.failed(ctx, err)
	}
	return s.takeList(ctx, list, r, each)
}

// body adapts an answer to package listwatch.
type body struct {
	request
	ctx    context.Context
	source *source
	*answer
}

func (b *body) Cancel()      { b.cancel(listwatch.ErrClosed) }
func (b *body) Close()       { b.close() }
func (b *body) Ended() error { return b.request.Ended(b.ctx) }

// Failed returns the error of a body that cannot be read to its end. If the server has
// sent all of it, the client may understand a form that we do not, so the client decodes
// the next ones.
func (b *body) Failed(err error) error {
	if b.answer.failed == nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		b.source.decoded.Store(true)
	}
	return b.broken(err)
}

// takeList encodes the objects of a list that the client has decoded.
func (s *source) takeList(ctx context.Context, list runtime.Object, r request, each func(*wire.Object) error) (page reflector.Page, err error) {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return page, r.failed(ctx, err)
	}
	page.Version, page.Continue = m.GetResourceVersion(), m.GetContinue()
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if err := r.Ended(ctx); err != nil {
			return err
		}
		o, err := s.prototype.encode(item)
		if err != nil {
			key, nameless := identify(item)
			return listwatch.Skip(&page, r.Undecodable(key, nameless, err))
		}
		return each(o)
	})
	return page, err
}

// Watch starts a watch. See [reflector.Source].
func (s *source) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	r := newRequest("watch", s.prototype)
	r.InitialEvents = opts.InitialEvents
	call := s.call(ctx, true)
	w, err := s.lister.WatchWithContext(call.context(ctx), listwatch.WatchOptions(opts))
	if a := call.answer(); a != nil {
		if err == nil && w != nil {
			w.Stop() // its body is empty: the tap has taken it
		}
		return listwatch.NewWatch(r.Request, &body{request: r, ctx: ctx, source: s, answer: a}, a.encoding, s.prototype.kind), nil
	}
	if err == nil {
		return newValueWatch(ctx, r, s.prototype, w), nil
	}
	err = r.failed(ctx, err)
	switch reflector.ReasonOf(err) {
	case reflector.Busy, reflector.Refused:
	default:
		// If the state cannot be streamed, the reflector lists it instead, so this error
		// is not reported.
		if !opts.InitialEvents && ctx.Err() == nil {
			s.complain(ctx, err)
		}
	}
	return nil, err
}

// Served sends a list request with a limit of one object. See [reflector.Source].
func (s *source) Served(ctx context.Context) (bool, error) {
	_, err := s.List(ctx, reflector.ListOptions{Version: "0", Limit: 1}, func(*wire.Object) error { return nil })
	if reflector.ReasonOf(err) == reflector.NotServed {
		return false, nil
	}
	return err == nil, err
}

// call prepares a call to the ListerWatcher. It returns nil if the response is not to be
// read as bytes.
func (s *source) call(ctx context.Context, watch bool) *call {
	if s.decoded.Load() {
		return nil
	}
	return &call{asked: ctx, watch: watch, reads: s.prototype.reads}
}
