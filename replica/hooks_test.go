// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

// The hooks are called for every request once, in order, before anything is looked up: a
// request that is refused does not reveal whether its cluster exists.
func TestHooks_seeEveryRequest(t *testing.T) {
	var calls []string
	note := func(format string, args ...any) { calls = append(calls, fmt.Sprintf(format, args...)) }
	inMemory(t, []string{"one"}, func(w *pipeWorld) {
		w.options = Options{
			Admit: func(_ *http.Request, q *Request) (func(), error) {
				note("admit %s %s", q.Verb, q.Path)
				if q.Query.Has("busy") {
					return nil, apierrors.NewTooManyRequests("later", 7)
				}
				return func() { note("done") }, nil
			},
			Authorize: func(_ *http.Request, q *Request) (*Access, error) {
				note("authorize %s", q.Cluster)
				if (q.Member != nil) != (q.Cluster == "one") {
					t.Errorf("the member of %q is %v", q.Cluster, q.Member)
				}
				if q.Cluster == "none" {
					return nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
				}
				return nil, nil
			},
			Audit: func(_ *http.Request, q *Request, o Outcome) { note("audit %s %d", q.Path, o.Status) },
		}
	}, func(t *testing.T, w *pipeWorld) {
		time.Sleep(10 * time.Second)
		for path, want := range map[string][]string{
			"/clusters/one/api/v1/configmaps":      {"admit list /api/v1/configmaps", "authorize one", "done", "audit /api/v1/configmaps 200"},
			"/clusters/one/nothing":                {"admit get /nothing", "authorize one", "done", "audit /nothing 404"},
			"/clusters/none/api/v1/configmaps":     {"admit list /api/v1/configmaps", "authorize none", "done", "audit /api/v1/configmaps 403"},
			"/clusters/none/api/v1/secrets?busy=1": {"admit list /api/v1/secrets", "audit /api/v1/secrets 429"},
			"/api/v1/configmaps":                   {"admit list /api/v1/configmaps", "authorize one", "done", "audit /api/v1/configmaps 200"},
			"/clusters//api/v1/configmaps":         {"admit get /clusters//api/v1/configmaps", "authorize ", "done", "audit /clusters//api/v1/configmaps 404"},
			"/readyz":                              {"admit get /readyz", "authorize ", "done", "audit /readyz 200"},
		} {
			calls = nil
			_, h, body := w.get(path)
			if !slices.Equal(calls, want) {
				t.Errorf("%s: calls are %q, want %q: %s", path, calls, want, body)
			}
			if strings.Contains(path, "busy") && h.Get("Retry-After") != "7" {
				t.Errorf("%s: Retry-After is %q", path, h.Get("Retry-After"))
			}
		}
	})
}

// A fleet without history cannot serve watches.
func TestNew_needsHistory(t *testing.T) {
	clusters, err := directory.NewStatic()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(clusters, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(f, nil); err == nil || !strings.Contains(err.Error(), "History") {
		t.Errorf("a fleet without history: %v", err)
	}
}
