// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package listwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// ErrClosed is the cause of the end of a request that was closed.
var ErrClosed = fmt.Errorf("closed: %w", context.Canceled)

// Watch reads the events of a watch from its response. It implements
// [reflector.Watch]: Next and Wait are called by one goroutine at a time, Close by any.
type Watch struct {
	request  Request
	response Response

	// mu is held by the reader. Close wakes the reader before it locks mu.
	mu     sync.Mutex
	reader *stream.WatchReader
	err    error // the reason why the watch ended
}

var _ reflector.Watch[*wire.Object] = (*Watch)(nil)

// NewWatch returns a watch. It owns the response. The objects get the kind; if it is nil
// they have the kind in their own bytes.
func NewWatch(req Request, resp Response, e wire.Encoding, kind *wire.Kind) *Watch {
	return &Watch{request: req, response: resp, reader: stream.NewWatchReader(resp, e, kind)}
}

// types are the types of the watch protocol's events. An ERROR is not an event for a
// reflector.
var types = [...]delta.Type{
	stream.Added:    delta.Added,
	stream.Modified: delta.Updated,
	stream.Deleted:  delta.Deleted,
	stream.Bookmark: delta.Bookmark,
	stream.Error:    0,
}

// Next waits for the next event. With an error of reason [reflector.Undecodable] it
// returns the type and the version of the event, as far as they could be read.
func (w *Watch) Next() (reflector.Event[*wire.Object], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return reflector.Event[*wire.Object]{}, w.err
	}
	e, err := w.reader.Next()
	event := reflector.Event[*wire.Object]{Type: types[e.Type], Version: e.Version}
	var unfiled *wire.ObjectError
	switch ended := w.response.Ended(); {
	case ended != nil:
		err = ended // an event that has arrived since is not returned
	case errors.As(err, &unfiled):
		return event, w.request.Undecodable(unfiled.Key, stream.Nameless(unfiled), err)
	case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
	case err != nil:
		err = w.response.Failed(err)
	case e.Type == stream.Error:
		err = w.request.Refused(&apierrors.StatusError{ErrStatus: *e.Status}, 0, false)
	default:
		event.Object, event.InitialEnd = e.Object, e.InitialEnd
		return event, nil
	}
	w.endLocked(err)
	return reflector.Event[*wire.Object]{}, err
}

// Wait implements [reflector.Waiter].
func (w *Watch) Wait() {
	w.mu.Lock()
	if w.err == nil {
		w.reader.Wait()
	}
	w.mu.Unlock()
}

// Close ends the watch and returns when no Next reads it any more.
func (w *Watch) Close() error {
	w.response.Cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.endLocked(fmt.Errorf("%s: %w", w.request.Doing, ErrClosed))
	}
	return nil
}

func (w *Watch) endLocked(err error) {
	w.err = err
	w.reader = nil
	w.response.Close()
}
