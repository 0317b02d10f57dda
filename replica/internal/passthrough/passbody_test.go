// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/replica/internal/respond"
)

// TestPassBody_cutOff: a body that is cut off does not look complete, even if it ends without
// an error. Only a watch may end with its request.
func TestPassBody_cutOff(t *testing.T) {
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name            string
		err             error // of the body, nil for its end
		cut, watch, all bool
	}{
		{"complete", nil, false, false, true},
		{"broken", broken, false, false, false},
		{"cut off", context.Canceled, true, false, false},
		{"cut off, and ended by the cluster", nil, true, false, false},
		{"watch that the cluster ends", nil, false, true, true},
		{"broken watch", broken, false, true, false},
		{"watch cut off", context.Canceled, true, true, true},
		{"watch cut off, and ended by the cluster", nil, true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			body := io.MultiReader(strings.NewReader("first\n"), readerFunc(func([]byte) (int, error) {
				if tt.cut {
					cancel()
				}
				if tt.err == nil {
					return 0, io.EOF
				}
				return 0, tt.err
			}))
			var tracker respond.Tracker
			w := tracker.Begin(httptest.NewRecorder())
			defer w.End()
			defer func() {
				p := recover()
				if err, _ := p.(error); p != nil && !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				if (p == nil) != tt.all {
					t.Errorf("aborted: %v", p)
				}
			}()
			passBody(ctx, w, http.StatusOK, body, w, tt.watch)
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
