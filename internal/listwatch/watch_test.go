// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package listwatch_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/listwatch"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var errBroken = errors.New("broken")

// response is a response whose body is read from a pipe.
type response struct {
	io.Reader
	cancel func()
	ended  error
	closed int
}

func (r *response) Cancel()                { r.cancel() }
func (r *response) Close()                 { r.closed++ }
func (r *response) Ended() error           { return r.ended }
func (r *response) Failed(err error) error { return errors.Join(errBroken, err) }

func watchOf(body string) (*listwatch.Watch, *response) {
	r := &response{Reader: strings.NewReader(body), cancel: func() {}}
	return listwatch.NewWatch(listwatch.Request{Doing: "watch widgets", Collection: true}, r, wire.JSON, nil), r
}

const (
	added      = `{"type":"ADDED","object":{"apiVersion":"e/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}}`
	modified   = `{"type":"MODIFIED","object":{"apiVersion":"e/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","resourceVersion":"8"}}}`
	deleted    = `{"type":"DELETED","object":{"apiVersion":"e/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","resourceVersion":"9"}}}`
	bookmark   = `{"type":"BOOKMARK","object":{"apiVersion":"e/v1","kind":"Widget","metadata":{"resourceVersion":"10","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	nameless   = `{"type":"DELETED","object":{"apiVersion":"e/v1","kind":"Widget","metadata":{"resourceVersion":"11"}}}`
	expired    = `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}}`
	unfinished = `{"type":"ADDED","object":{`
)

func TestWatch_returnsEvents(t *testing.T) {
	w, r := watchOf(added + modified + deleted + bookmark)
	for _, want := range []reflector.Event[*wire.Object]{
		{Type: delta.Added, Version: "7"}, {Type: delta.Updated, Version: "8"}, {Type: delta.Deleted, Version: "9"}, {
			Type: delta.Bookmark, Version: "10", InitialEnd: true,
		},
	} {
		e, err := w.Next()
		if err != nil || e.Type != want.Type || e.Version != want.Version || e.InitialEnd != want.InitialEnd {
			t.Errorf("the event is %v, %v, want %v", e, err, want)
		}
		if has := e.Object != nil; has != (e.Type != delta.Bookmark) {
			t.Errorf("%v has an object: %t", e.Type, has)
		}
	}
	for range 2 {
		if _, err := w.Next(); err != io.EOF { //nolint:errorlint // must be bare
			t.Errorf("the end is %v", err)
		}
	}
	if err := w.Close(); err != nil || r.closed != 1 {
		t.Errorf("closed %d times, %v", r.closed, err)
	}
}

// TestWatch_endsWithAnError checks that a watch continues only after an object that
// cannot be read.
func TestWatch_endsWithAnError(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		is   func(error) bool
	}{
		"status": {expired, func(err error) bool {
			return reflector.ReasonOf(err) == reflector.Expired && apierrors.IsResourceExpired(err)
		}},
		"cut off": {
			unfinished, func(err error) bool {
				return errors.Is(err, errBroken) && errors.Is(err, io.ErrUnexpectedEOF)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := watchOf(nameless + added + c.body)
			e, err := w.Next()
			var failed *reflector.Error
			if !errors.As(err, &failed) || failed.Reason != reflector.Undecodable || !failed.Nameless ||
				e.Type != delta.Deleted || e.Version != "11" {
				t.Errorf("the event without a name is %v, %v", e, err)
			}
			if e, err := w.Next(); err != nil || e.Type != delta.Added {
				t.Errorf("the event after it is %v, %v", e, err)
			}
			for range 2 {
				if _, err := w.Next(); !c.is(err) {
					t.Errorf("the error is %v", err)
				}
			}
			if r.closed != 1 {
				t.Errorf("closed %d times", r.closed)
			}
		})
	}
}

func TestWatch_returnsNothingAfterTheEnd(t *testing.T) {
	w, r := watchOf(added + added)
	r.ended = context.DeadlineExceeded
	if e, err := w.Next(); !errors.Is(err, context.DeadlineExceeded) || e.Object != nil || r.closed != 1 {
		t.Errorf("%v, %v, closed %d times", e, err, r.closed)
	}
}

// TestWatch_close checks that Close makes a waiting Next return.
func TestWatch_close(t *testing.T) {
	body, sender := io.Pipe()
	r := &response{Reader: body, cancel: func() { _ = sender.CloseWithError(listwatch.ErrClosed) }}
	w := listwatch.NewWatch(listwatch.Request{Doing: "watch widgets"}, r, wire.JSON, nil)
	next := make(chan error)
	go func() {
		_, err := w.Next()
		next <- err
	}()
	if _, err := sender.Write([]byte(unfinished)); err != nil { // returns when it has been read
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-next; !errors.Is(err, listwatch.ErrClosed) {
		t.Errorf("Next returned %v", err)
	}
	if _, err := w.Next(); !errors.Is(err, context.Canceled) || r.closed != 1 {
		t.Errorf("after Close: %v, closed %d times", err, r.closed)
	}
}
