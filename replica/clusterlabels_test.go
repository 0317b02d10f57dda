// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// label makes the clusters of the fleet those with these labels, "env=prod,region=eu" by name.
func (w *pipedReplica) label(clusters map[string]string) {
	var entries []fleet.Entry
	for name, text := range clusters {
		e := w.entry(name, name)
		e.Labels = map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				e.Labels[key] = value
			}
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b fleet.Entry) int { return strings.Compare(a.Name, b.Name) })
	w.lists <- entries
}

// selected returns the query of a selector.
func selected(selector string) string { return "labelSelector=" + url.QueryEscape(selector) }

// A selector below /fleet can require labels of clusters, beside their names and labels of
// objects. The page /clusters has them.
func TestClusterLabels_list(t *testing.T) {
	inMemory(t, []string{"eu-1", "eu-2", "us-1"}, nil, func(t *testing.T, w *pipedReplica) {
		w.label(map[string]string{
			"eu-1": "env=prod,example.com/region=eu", "eu-2": "env=test,example.com/region=eu", "us-1": "",
		})
		time.Sleep(10 * time.Second)
		for selector, want := range map[string]string{
			"cluster.watershed.dev/env=prod":                                       "eu-1/a eu-1/b",
			"cluster.watershed.dev/env":                                            "eu-1/a eu-1/b eu-2/a eu-2/b",
			"!cluster.watershed.dev/env":                                           "us-1/a us-1/b",
			"cluster.watershed.dev/env!=prod":                                      "eu-2/a eu-2/b us-1/a us-1/b",
			"cluster.watershed.dev/env in (prod,test),app=b":                       "eu-1/b eu-2/b",
			"example.com.cluster.watershed.dev/region=eu":                          "eu-1/a eu-1/b eu-2/a eu-2/b",
			"cluster.watershed.dev/region=eu":                                      "",
			"cluster.watershed.dev/env=none":                                       "",
			"cluster.watershed.dev/env,watershed.dev/cluster!=eu-1":                "eu-2/a eu-2/b",
			"cluster.watershed.dev/env=prod,watershed.dev/cluster=eu-2":            "",
			"cluster.watershed.dev/env=prod,cluster.watershed.dev/env!=prod,app=a": "",
		} {
			for _, query := range []string{"", "&resourceVersion=0", "&limit=1"} {
				code, h, body := w.get("/fleet/api/v1/configmaps?" + selected(selector) + query)
				got, next := placed(t, body)
				for query == "&limit=1" && next != "" {
					_, _, body = w.get("/fleet/api/v1/configmaps?" + selected(selector) + query + "&continue=" +
						url.QueryEscape(next))
					var page []string
					page, next = placed(t, body)
					got = append(got, page...)
				}
				if code != http.StatusOK || strings.Join(got, " ") != want {
					t.Errorf("%s%s: %d %q, want %q", selector, query, code, got, want)
				}
				if warned := strings.Contains(h.Get("Warning"), "no cluster matches"); warned != (want == "") {
					t.Errorf("%s: the warning is %q", selector, h.Get("Warning"))
				}
			}
		}
		for selector, want := range map[string]string{
			"": "eu-1 eu-2 us-1", "env=prod": "eu-1", "example.com/region": "eu-1 eu-2", "!env": "us-1", "env=none": "",
		} {
			code, _, body := w.get("/clusters?" + selected(selector))
			var document struct {
				Clusters []struct {
					Name   string
					Labels map[string]string
				}
			}
			var names []string
			if err := json.Unmarshal([]byte(body), &document); err != nil || code != http.StatusOK {
				t.Errorf("%s: %d %v", selector, code, err)
			}
			for _, c := range document.Clusters {
				names = append(names, c.Name)
				if c.Name == "eu-1" && c.Labels["env"] != "prod" {
					t.Errorf("eu-1 has %v", c.Labels)
				}
			}
			if strings.Join(names, " ") != want {
				t.Errorf("/clusters with %s: %q, want %q", selector, names, want)
			}
		}
		if code, _, body := w.get("/clusters?labelSelector=%3D%3D"); code != http.StatusBadRequest {
			t.Errorf("no selector: %d %s", code, body)
		}
	})
}

// An object of one of several clusters can be read with a selector of clusters.
func TestClusterLabels_get(t *testing.T) {
	inMemory(t, []string{"eu", "us"}, nil, func(t *testing.T, w *pipedReplica) {
		w.label(map[string]string{"eu": "env=prod", "us": "env=test"})
		time.Sleep(10 * time.Second)
		const one = "/fleet/api/v1/namespaces/shop/configmaps/"
		for path, want := range map[string]int{
			one + "a": http.StatusConflict,
			one + "a?" + selected("cluster.watershed.dev/env=prod"):    http.StatusOK,
			one + "none?" + selected("cluster.watershed.dev/env=prod"): http.StatusNotFound,
			one + "a?" + selected("cluster.watershed.dev/env=none"):    http.StatusNotFound,
		} {
			if code, _, body := w.get(path); code != want {
				t.Errorf("%s: %d, want %d: %s", path, code, want, body)
			}
		}
	})
}

// When the labels of a cluster change, watches that select clusters by labels end. The client
// lists again if other clusters are selected, and goes on otherwise. Other watches do not end.
func TestClusterLabels_changeEndsWatches(t *testing.T) {
	inMemory(t, []string{"eu", "us", "za"}, nil, func(t *testing.T, w *pipedReplica) {
		w.label(map[string]string{"eu": "env=prod", "us": "env=test", "za": "env=prod"})
		time.Sleep(20 * time.Second)
		const watch = "/fleet" + watchMaps
		selectors := map[string]string{
			"prod":  "cluster.watershed.dev/env=prod",
			"any":   "cluster.watershed.dev/env",
			"all":   "",
			"named": "watershed.dev/cluster=us",
		}
		events, versions, took := map[string][]string{}, map[string]string{}, map[string]time.Duration{}
		began := time.Now()
		var mu sync.Mutex
		var reading sync.WaitGroup
		for name, selector := range selectors {
			reading.Go(func() {
				_, _, body := w.get(watch + "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&" +
					selected(selector))
				mu.Lock()
				defer mu.Unlock()
				events[name], versions[name] = watched(t, body)
				took[name] = time.Since(began)
			})
		}
		time.Sleep(time.Second)
		w.origins["us"].add("new", 20)
		time.Sleep(4 * time.Second)
		w.label(map[string]string{"eu": "env=prod", "us": "env=prod", "za": "env=other"})
		reading.Wait()
		if took["prod"] > 7*time.Second || took["any"] > 7*time.Second || took["all"] < 30*time.Second ||
			took["named"] < 30*time.Second {
			t.Errorf("the watches ended after %v", took)
		}
		if want := []string{"ADDED eu/a", "ADDED eu/b", "ADDED za/a", "ADDED za/b"}; !slices.Equal(events["prod"],
			want) {
			t.Errorf("the events are %q, want %q", events["prod"], want)
		}
		if !slices.Contains(events["any"], "ADDED us/new") {
			t.Errorf("the events are %q", events["any"])
		}
		for name, want := range map[string]string{"prod": "ERROR 410", "any": "", "all": "", "named": ""} {
			_, _, body := w.get(watch + "&resourceVersion=" + versions[name] + "&" + selected(selectors[name]))
			if got, _ := watched(t, body); strings.Join(got, " ") != want {
				t.Errorf("%s resumes with %q, want %q", name, got, want)
			}
		}
		_, _, body := w.get("/fleet" + configMaps + "?" + selected(selectors["prod"]))
		if got, _ := placed(t, body); strings.Join(got, " ") != "eu/a eu/b us/a us/b us/new" {
			t.Errorf("after that: %q", got)
		}
	})
}

// A selector does not show clusters that the caller may not see.
func TestClusterLabels_seesNoMore(t *testing.T) {
	g := newGate()
	inMemory(t, []string{"eu", "us", "za"}, func(w *pipedReplica) {
		w.options.Authorize = g.authorize
	}, func(t *testing.T, w *pipedReplica) {
		w.label(map[string]string{"eu": "env=prod", "us": "env=test", "za": "env=prod"})
		time.Sleep(20 * time.Second)
		g.allow("alice", "eu", "us")
		for selector, want := range map[string]string{
			"cluster.watershed.dev/env=prod": "eu/a eu/b", "cluster.watershed.dev/env": "eu/a eu/b us/a us/b",
			"cluster.watershed.dev/env=none":                          "",
			"cluster.watershed.dev/env=prod,watershed.dev/cluster=za": "",
		} {
			code, _, body := w.as("alice", "/fleet"+configMaps+"?"+selected(selector))
			if got, _ := placed(t, body); code != http.StatusOK || strings.Join(got, " ") != want {
				t.Errorf("%s: %d %q, want %q", selector, code, got, want)
			}
		}
	})
}
