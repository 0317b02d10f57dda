// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"fmt"
	"io"
	"sync"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// watch is a watch under way.
type watch struct {
	resp   *response
	expect expectation

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

// Next waits for the next event. With an error of reason [reflector.Undecodable]
// come the type and the version of the event as far as they are known.
func (w *watch) Next() (reflector.Event[*wire.Object], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var event reflector.Event[*wire.Object]
	if w.err != nil {
		return event, w.err
	}
	e, err := w.reader.Next()
	if w.resp.own.Err() != nil {
		// What arrived after the end is not for anybody.
		return event, w.endLocked(w.resp.failed(w.resp.own.Err()))
	}
	switch {
	case err == io.EOF: //nolint:errorlint // a wrapped EOF is a body that broke off
		return event, w.endLocked(io.EOF)
	case err != nil:
		err = w.resp.unreadable(err)
		if isReason(err, reflector.Undecodable) {
			// What could be read of the event may help.
			event.Type, event.Version = eventTypes[e.Type], e.Version
			return event, err
		}
		return event, w.endLocked(err)
	case e.Type == wire.Error && e.Status != nil:
		return event, w.endLocked(w.expect.error(w.resp.doing, *e.Status, 0, false))
	case eventTypes[e.Type] == 0:
		return event, w.endLocked(w.resp.failed(fmt.Errorf("event %s has no meaning here", e.Type)))
	}
	event.Type = eventTypes[e.Type]
	event.Object, event.Version, event.InitialEnd = e.Object, e.Version, e.InitialEnd
	return event, nil
}

// Close ends the watch and returns when nothing reads it any more.
func (w *watch) Close() error {
	w.resp.cancel(errClosed)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		_ = w.endLocked(w.resp.failed(errClosed))
	}
	return nil
}

func (w *watch) endLocked(err error) error {
	w.err = err
	w.reader = nil
	w.resp.close()
	return err
}
