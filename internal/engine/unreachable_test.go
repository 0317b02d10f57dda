// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
)

// TestUnreachable has servers that fail in their own ways when an informer identifies their
// cluster. If a retry may help, it keeps its files.
func TestUnreachable(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  bool
	}{
		"closed before the response": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"closed in the response": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"kind":`))
		}, true},
		"failing":      {status(http.StatusInternalServerError), true},
		"busy":         {status(http.StatusTooManyRequests), true},
		"unauthorized": {status(http.StatusUnauthorized), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.serve)
			defer server.Close()
			c, err := kube.FromConfig(&rest.Config{Host: server.URL}, nil)
			expect.NoError(t, err)
			defer c.CloseIdleConnections()
			_, err = c.UID(t.Context())
			if err == nil || unreachable(err) != tt.want {
				t.Errorf("unreachable is %v: %v", unreachable(err), err)
			}
		})
	}
	if unreachable(errors.New("a transform needs a name")) {
		t.Error("an error without a request is retried")
	}
}
