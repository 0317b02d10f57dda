// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// errClosed is what a watch says that nobody reads any more.
var errClosed = fmt.Errorf("closed: %w", context.Canceled)

type event = reflector.Event[*wire.Object]

// bytesWatch is a watch whose bytes the informer reads itself.
type bytesWatch struct {
	request
	ctx    context.Context
	source *source
	answer *answer

	// mu is held by who reads; Close wakes the reader before it takes it.
	mu     sync.Mutex
	reader *wire.WatchReader
	err    error // why it is over
}

var eventTypes = [wire.Error + 1]delta.Type{
	wire.Added:    delta.Added,
	wire.Modified: delta.Updated,
	wire.Deleted:  delta.Deleted,
	wire.Bookmark: delta.Bookmark,
}

// Next waits for the next event. See [reflector.Watch].
func (w *bytesWatch) Next() (event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return event{}, w.err
	}
	e, err := w.reader.Next()
	var unfiled *wire.ObjectError
	switch {
	case w.ctx.Err() != nil:
		// What arrived after the end is not for anybody.
		return event{}, w.endLocked(w.failed(w.ctx, w.ctx.Err()))
	case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
		return event{}, w.endLocked(io.EOF)
	case errors.As(err, &unfiled):
		return event{Type: eventTypes[e.Type], Version: e.Version},
			w.unreadable(unfiled.Key, unfiled.Nameless(), err)
	case err != nil:
		w.source.unread(w.answer, err)
		return event{}, w.endLocked(w.broken(err))
	case e.Type == wire.Error && e.Status != nil:
		return event{}, w.endLocked(w.failed(w.ctx, &apierrors.StatusError{ErrStatus: *e.Status}))
	case eventTypes[e.Type] == 0:
		return event{}, w.endLocked(w.broken(fmt.Errorf("event %s has no meaning here", e.Type)))
	}
	return event{Type: eventTypes[e.Type], Object: e.Object, Version: e.Version, InitialEnd: e.InitialEnd}, nil
}

// Close ends the watch and returns when nothing reads it any more.
func (w *bytesWatch) Close() error {
	w.answer.cancel(errClosed)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_ = w.endLocked(errClosed)
	}
	return nil
}

func (w *bytesWatch) endLocked(err error) error {
	w.err = err
	w.reader = nil
	w.answer.close()
	return err
}

// broken is an error of a stream that had begun: it says nothing about what the
// server can do.
func (r request) broken(err error) error { return fmt.Errorf("%s: %w", r.doing, err) }

// valueWatch is a watch whose objects a client has decoded.
type valueWatch struct {
	request
	ctx       context.Context
	prototype *prototype
	watch     watch.Interface

	closed context.Context
	end    context.CancelFunc
}

func newValueWatch(ctx context.Context, r request, p *prototype, w watch.Interface) *valueWatch {
	v := &valueWatch{request: r, ctx: ctx, prototype: p, watch: w}
	v.closed, v.end = context.WithCancel(context.Background())
	return v
}

// Next waits for the next event. See [reflector.Watch].
func (w *valueWatch) Next() (event, error) {
	select {
	case e, open := <-w.watch.ResultChan():
		switch {
		case w.closed.Err() != nil:
			return event{}, errClosed
		case w.ctx.Err() != nil:
			return event{}, w.failed(w.ctx, w.ctx.Err())
		case !open:
			return event{}, io.EOF
		}
		return w.event(e)
	case <-w.closed.Done():
		return event{}, errClosed
	case <-w.ctx.Done():
		return event{}, w.failed(w.ctx, w.ctx.Err())
	}
}

func (w *valueWatch) event(e watch.Event) (event, error) {
	var t delta.Type
	switch e.Type {
	case watch.Added:
		t = delta.Added
	case watch.Modified:
		t = delta.Updated
	case watch.Deleted:
		t = delta.Deleted
	case watch.Bookmark:
		m, err := meta.Accessor(e.Object)
		if err != nil {
			return event{Type: delta.Bookmark}, w.unreadable("", false, fmt.Errorf("a bookmark: %w", err))
		}
		return event{
			Type:       delta.Bookmark,
			Version:    m.GetResourceVersion(),
			InitialEnd: m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true",
		}, nil
	case watch.Error:
		err := apierrors.FromObject(e.Object)
		var status *apierrors.StatusError
		if errors.As(err, &status) {
			return event{}, w.failed(w.ctx, err)
		}
		return event{}, w.broken(err)
	default:
		return event{}, w.broken(fmt.Errorf("event %q has no meaning here", e.Type))
	}
	version := ""
	if m, err := meta.Accessor(e.Object); err == nil {
		version = m.GetResourceVersion()
	}
	o, err := w.prototype.encode(e.Object)
	if err != nil {
		key, nameless := identify(e.Object)
		if other := (*typeError)(nil); errors.As(err, &other) {
			key, nameless = "", true // its key may be that of an object of this type
		}
		return event{Type: t, Version: version}, w.unreadable(key, nameless, err)
	}
	return event{Type: t, Object: o, Version: version}, nil
}

// unreadable is the error for an object that cannot be kept.
func (r request) unreadable(key string, nameless bool, err error) error {
	return &reflector.Error{Reason: reflector.Undecodable, Key: key, Nameless: nameless, Err: fmt.Errorf("%s: %w", r.doing, err)}
}

// Close ends the watch.
func (w *valueWatch) Close() error {
	w.end()
	w.watch.Stop()
	return nil
}
