// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// source provides the objects of a ListerWatcher as bytes. Lists are encoded again, because
// only the ListerWatcher knows what it makes of a response: it may send several requests,
// and leave out or edit objects. So are watches, unless the ListerWatcher returns the watch
// of its client as it is and the client has a [Tap]: then they are read as the server sent
// them.
type source struct {
	lister    cache.ListerWatcherWithContext
	prototype *prototype
	// complain receives the errors that client-go passes to a WatchErrorHandler.
	complain func(context.Context, error)
	// decoded is set if watches cannot be read as bytes: the server sends responses in
	// another form, or the ListerWatcher makes other watches of them.
	decoded atomic.Bool
}

var _ reflector.Source[*wire.Object] = (*source)(nil)

// List reads one page. See [reflector.Source].
func (s *source) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
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

func (s *source) list(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	r := newRequest("list", s.prototype)
	list, err := await(ctx, func() (runtime.Object, error) {
		return s.lister.ListWithContext(ctx, listwatch.ListOptions(opts))
	}, nil)
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
func (s *source) takeList(
	ctx context.Context, list runtime.Object, r request, each func(*wire.Object) error,
) (page reflector.Page, err error) {
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
	w, a, err := s.watch(ctx, listwatch.WatchOptions(opts))
	switch {
	case a != nil:
		return listwatch.NewWatch(r.Request, &body{request: r, ctx: ctx, source: s, answer: a}, a.encoding,
			s.prototype.kind), nil
	case err == nil:
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

// watch calls the ListerWatcher. It returns the response of the server if the ListerWatcher
// returns the watch of that response, and of no other, as its client made it. Otherwise it
// returns the ListerWatcher's watch: a watch of another type may filter, edit or merge
// events, also events of a response that was taken, so the ListerWatcher is called again.
func (s *source) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, *answer, error) {
	call := s.call(ctx)
	w, err := s.callWatch(call.context(ctx), opts)
	a, only := call.answer()
	if a == nil {
		return w, nil, err
	}
	if w != nil {
		w.Stop() // the body that it reads is empty
	}
	if _, plain := w.(*watch.StreamWatcher); plain && only && err == nil {
		return nil, a, nil
	}
	a.close()
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	s.decoded.Store(true)
	w, err = s.callWatch(ctx, opts)
	return w, nil, err
}

func (s *source) callWatch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return await(ctx, func() (watch.Interface, error) {
		return s.lister.WatchWithContext(ctx, opts)
	}, watch.Interface.Stop)
}

// Served sends a list request with a limit of one object. See [reflector.Source].
func (s *source) Served(ctx context.Context) (bool, error) {
	_, err := s.List(ctx, reflector.ListOptions{Version: "0", Limit: 1}, func(*wire.Object) error { return nil })
	if reflector.ReasonOf(err) == reflector.NotServed {
		return false, nil
	}
	return err == nil, err
}

// call prepares a call to the ListerWatcher for a watch. It returns nil if the response is
// not to be read as bytes.
func (s *source) call(ctx context.Context) *call {
	if s.decoded.Load() {
		return nil
	}
	return &call{asked: ctx, reads: s.prototype.reads}
}

// await returns the result of f, which calls a ListerWatcher, or an error when ctx ends: a
// function without a context may hang, and then a stopped informer does not wait for it.
// Its goroutine ends when f returns. The result is discarded then; discard, which may be
// nil, releases it.
func await[T comparable](ctx context.Context, f func() (T, error), discard func(T)) (T, error) {
	var none T
	type result struct {
		value T
		err   error
	}
	results := make(chan result)
	go func() {
		value, err := f()
		select {
		case results <- result{value, err}:
		case <-ctx.Done():
			if discard != nil && value != none {
				discard(value)
			}
		}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
