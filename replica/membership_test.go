// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/kube"
)

// When a cluster joins, watches of callers that do not see everything end, so that the hook
// decides about the new one. Watches of others continue, and a set that has not changed can
// be resumed.
func TestMembership_changeEndsWatches(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us", "za"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		w.admit("eu", "us")
		time.Sleep(20 * time.Second)
		callers := map[string][]string{"some": {"eu", "za"}, "same": {"eu"}, "all": {"*"}}
		events, versions, took := map[string][]string{}, map[string]string{}, map[string]time.Duration{}
		began := time.Now()
		var mu sync.Mutex
		var reading sync.WaitGroup
		for caller, set := range callers {
			g.allow(caller, set...)
			reading.Go(func() {
				_, _, body := w.as(caller, "/fleet"+watchMaps+"&sendInitialEvents=1&resourceVersionMatch=NotOlderThan")
				mu.Lock()
				defer mu.Unlock()
				events[caller], versions[caller] = watched(t, body)
				took[caller] = time.Since(began)
			})
		}
		time.Sleep(5 * time.Second)
		w.admit("eu", "us", "za")
		reading.Wait()
		if took["some"] > 7*time.Second || took["same"] > 7*time.Second || took["all"] < 30*time.Second {
			t.Errorf("the watches ended after %v", took)
		}
		if !slices.Contains(events["all"], "ADDED za/a") || len(events["some"]) != 2 || len(events["same"]) != 2 {
			t.Errorf("the events are %q", events)
		}
		for caller, want := range map[string]string{"some": "ERROR 410", "same": "", "all": ""} {
			_, _, body := w.as(caller, "/fleet"+watchMaps+"&resourceVersion="+versions[caller])
			if got, _ := watched(t, body); strings.Join(got, " ") != want {
				t.Errorf("%s resumes with %q, want %q", caller, got, want)
			}
		}
	})
}

// While a server takes the place of another one under its name, callers do not see the
// objects of the previous server: the review was not made there.
func TestMembership_replacedServerIsNotRead(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "other", "us"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
		w.origins["other"].answers(silentList)
	}, func(t *testing.T, w *pipedReplica) {
		w.admit("eu", "us")
		time.Sleep(20 * time.Second)
		g.allow("alice", "eu", "us")
		_, _, body := w.as("alice", "/fleet"+configMaps)
		version := versionIn(t, body)
		w.lists <- []fleet.Entry{w.entry("eu", "other"), w.entry("us", "us")}
		time.Sleep(20 * time.Second)
		code, h, body := w.as("alice", "/fleet"+configMaps)
		if got, _ := placed(t, body); code != http.StatusOK || !slices.Equal(got, []string{"us/a", "us/b"}) ||
			!strings.Contains(strings.Join(h["Warning"], "\n"), "not reached yet, and left out: cluster eu") {
			t.Errorf("while the server is replaced: %d %q %q", code, got, h["Warning"])
		}
		if code, _, body := w.as("alice",
			"/fleet/api/v1/namespaces/shop/configmaps/none"); code != http.StatusServiceUnavailable {
			t.Errorf("an object that may be there: %d %s", code, body)
		}
		_, _, body = w.as("alice", "/fleet"+watchMaps+"&resourceVersion="+version)
		if got, _ := watched(t, body); !slices.Equal(got, []string{"ERROR 410"}) {
			t.Errorf("a watch from before: %q", got)
		}
		w.origins["other"].answers(func(http.ResponseWriter, *http.Request) bool { return false })
		w.origins["other"].network.cut()
		time.Sleep(3 * time.Minute)
		_, _, body = w.as("alice", "/fleet"+configMaps)
		if got, _ := placed(t, body); !slices.Equal(got, []string{"eu/a", "eu/b", "us/a", "us/b"}) {
			t.Errorf("after that: %q", got)
		}
	})
}

// A hook that is set decides about impersonation.
func TestAuthorize_decidesAboutImpersonation(t *testing.T) {
	inMemory(t, []string{"one"}, func(w *pipedReplica) {
		w.options.Authorize = func(*http.Request, *Request) (*Access, error) { return nil, nil }
	}, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		if code, _, body := w.get("/clusters/one"+configMaps, "Impersonate-User", "bob"); code != http.StatusOK {
			t.Errorf("%d %s", code, body)
		}
	})
}

// Documents are kept for a bounded number of sets, and sets with the same resources share
// them.
func TestFleetDocuments_areBounded(t *testing.T) {
	var d fleetDocuments
	of := func(n int) setResources {
		r := kube.Resource{
			GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: fmt.Sprint("r", n)},
			Kind:                 "R",
			Verbs:                []string{"list"},
		}
		return setResources{served: []kube.Resource{r}}
	}
	first := d.of("first", of(0))
	if d.of("second", of(0)) != first || d.of("first", of(0)) != first {
		t.Error("the same resources have different documents")
	}
	if d.of("first", of(1)) == first {
		t.Error("other resources have the same documents")
	}
	for i := range 3 * maxDocumentSets {
		d.of(fmt.Sprint(i), of(i))
		d.of("used", of(0))
	}
	if len(d.sets) != maxDocumentSets || d.sets["used"] == nil || d.sets["first"] != nil {
		t.Errorf("%d sets are kept", len(d.sets))
	}
}
