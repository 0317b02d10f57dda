// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

type event = reflector.Event[*wire.Object]

// valueWatch is a watch whose objects the client has decoded. Without a [Tap] the client
// sends events, not bytes, so they are encoded again.
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
			return event{}, listwatch.ErrClosed
		case w.ctx.Err() != nil:
			return event{}, w.failed(w.ctx, w.ctx.Err())
		case !open:
			return event{}, io.EOF
		}
		return w.event(e)
	case <-w.closed.Done():
		return event{}, listwatch.ErrClosed
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
			return event{Type: delta.Bookmark}, w.Undecodable("", false, fmt.Errorf("a bookmark: %w", err))
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
		return event{}, w.broken(fmt.Errorf("unexpected event type %q", e.Type))
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
		return event{Type: t, Version: version}, w.Undecodable(key, nameless, err)
	}
	return event{Type: t, Object: o, Version: version}, nil
}

// Close ends the watch.
func (w *valueWatch) Close() error {
	w.end()
	w.watch.Stop()
	return nil
}
