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
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
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
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for path, want := range map[string][]string{
			"/clusters/one/api/v1/configmaps": {
				"admit list /api/v1/configmaps", "authorize one", "done", "audit /api/v1/configmaps 200",
			},
			"/clusters/one/nothing": {
				"admit get /nothing", "authorize one", "done", "audit /nothing 404",
			},
			"/clusters/none/api/v1/configmaps": {
				"admit list /api/v1/configmaps", "authorize none", "done", "audit /api/v1/configmaps 403",
			},
			"/clusters/none/api/v1/secrets?busy=1": {"admit list /api/v1/secrets", "audit /api/v1/secrets 429"},
			"/api/v1/configmaps": {
				"admit list /api/v1/configmaps", "authorize one", "done", "audit /api/v1/configmaps 200",
			},
			"/clusters//api/v1/configmaps": {
				"admit get /clusters//api/v1/configmaps", "authorize ", "done",
				"audit /clusters//api/v1/configmaps 404",
			},
			"/readyz": {"admit get /readyz", "authorize ", "done", "audit /readyz 200"},
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

// The audit is called when a watch begins and when it ends, on a WebSocket too, with one
// number for both.
func TestHooks_auditWatches(t *testing.T) {
	outcomes := make(chan Outcome, 10)
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		w.options = Options{Audit: func(_ *http.Request, _ *Request, o Outcome) { outcomes <- o }}
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		var last uint64
		check := func(what string, code int) {
			t.Helper()
			begin, end := <-outcomes, <-outcomes
			if !begin.Started || end.Started || begin.Status != code || end.Status != code ||
				begin.Number != end.Number || begin.Number == last || begin.Took > end.Took {
				t.Errorf("%s: the outcomes are %+v and %+v", what, begin, end)
			}
			last = begin.Number
		}
		w.get("/clusters/one/api/v1/configmaps?watch=1&timeoutSeconds=1")
		check("a watch", http.StatusOK)
		client, _ := w.upgrade(socketPath + "&timeoutSeconds=1")
		defer client.Close()
		for {
			if kind, _, err := client.frame(); err != nil || kind == 8 {
				break
			}
		}
		check("a WebSocket", http.StatusSwitchingProtocols)
		w.get("/clusters/one/api/v1/nothing?watch=1")
		check("a refused watch", http.StatusNotFound)
		if len(outcomes) != 0 {
			t.Errorf("%d more calls", len(outcomes))
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
