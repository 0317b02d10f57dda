// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// hub is a source that cannot be read.
type hub struct{ directory.Static }

func (*hub) String() string { return "Cluster API on hub" }

func (*hub) Err() error { return errors.New("connection refused") }

// TestReady_waitsForSources starts while a hub is down: the clusters that it has are not known,
// so none is said not to exist.
func TestReady_waitsForSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, err := directory.NewStatic(fleet.Entry{Name: "here", Err: errors.New("no credentials")})
		expect.NoError(t, err)
		from := &hub{}
		f, err := fleet.New(directory.NewJoin([]directory.Part{
			{Name: "static", Directory: here},
			{Name: "hub", Directory: from},
		}, nil), &fleet.Options{History: 1 << 20})
		expect.NoError(t, err)
		server, err := replica.New(f, nil)
		expect.NoError(t, err)
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return w.Code, w.Body.String()
		}
		check := func(path string, code int, text string) {
			t.Helper()
			if got, body := get(path); got != code || !strings.Contains(body, text) {
				t.Errorf("%s: %d %s, want %d with %q", path, got, body, code, text)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		defer func() {
			cancel()
			expect.NoError(t, <-ended)
		}()
		time.Sleep(time.Minute)
		const reason = "no report of Cluster API on hub: connection refused"
		check("/clusters/there/api", http.StatusServiceUnavailable, reason)
		check("/readyz", http.StatusInternalServerError, "[-]directory failed: reason withheld")
		check("/readyz?verbose", http.StatusInternalServerError, reason)
		check("/clusters", http.StatusOK, `"here"`) // it need not wait
		expect.NoError(t, from.Set())
		synctest.Wait()
		check("/clusters/there/api", http.StatusNotFound, "there is no cluster")
		check("/readyz", http.StatusOK, "ok")
	})
}
