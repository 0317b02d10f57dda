// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/encode"
)

const tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io"

// placed returns the cluster and the name of each object of a list.
func placed(t *testing.T, body string) (all []string, next string) {
	t.Helper()
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("%v: %.200s", err, body)
	}
	for _, o := range list.Items {
		all = append(all, o.Annotations[encode.ClusterAnnotation]+"/"+o.Name)
		if _, labelled := o.Labels[encode.ClusterAnnotation]; labelled {
			t.Errorf("%s has the label", o.Name)
		}
	}
	return all, list.Continue
}

// A selector below /fleet can require a cluster, with every operator and beside other labels.
func TestClusterSelector_list(t *testing.T) {
	inMemory(t, []string{"eu-1", "eu-2", "us-1"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		for selector, want := range map[string]string{
			"":                                                       "eu-1/a eu-1/b eu-2/a eu-2/b us-1/a us-1/b",
			"watershed.dev/cluster=eu-2":                             "eu-2/a eu-2/b",
			"watershed.dev/cluster==eu-2":                            "eu-2/a eu-2/b",
			"watershed.dev/cluster!=eu-2":                            "eu-1/a eu-1/b us-1/a us-1/b",
			"watershed.dev/cluster":                                  "eu-1/a eu-1/b eu-2/a eu-2/b us-1/a us-1/b",
			"!watershed.dev/cluster":                                 "",
			"watershed.dev/cluster=none":                             "",
			"app=b,watershed.dev/cluster=us-1":                       "us-1/b",
			"watershed.dev/cluster in (us-1, eu-1),app!=b":           "eu-1/a us-1/a",
			"watershed.dev/cluster notin (us-1, eu-1)":               "eu-2/a eu-2/b",
			"watershed.dev/cluster=eu-1,watershed.dev/cluster!=eu-1": "",
			"watershed.dev/cluster in (eu-1,eu-2),watershed.dev/cluster!=eu-1": "eu-2/a eu-2/b",
		} {
			for _, path := range []string{"/fleet/api/v1/configmaps", "/fleet/api/v1/namespaces/shop/configmaps"} {
				code, h, body := w.get(path + "?labelSelector=" + url.QueryEscape(selector))
				got, _ := placed(t, body)
				if code != http.StatusOK || strings.Join(got, " ") != want {
					t.Errorf("%s: %d %q, want %q", selector, code, got, want)
				}
				if warned := strings.Contains(h.Get("Warning"), "no cluster matches"); warned != (want == "") {
					t.Errorf("%s: the warning is %q", selector, h.Get("Warning"))
				}
			}
		}
		code, _, body := w.get("/fleet/api/v1/configmaps?fieldSelector=metadata.cluster%3Deu-1")
		if code != http.StatusBadRequest {
			t.Errorf("a field selector: %d %s", code, body)
		}
		code, _, _ = w.get("/fleet/api/v1/configmaps?labelSelector=watershed.dev/cluster%3D%3D%3D")
		if code != http.StatusBadRequest {
			t.Errorf("no selector: %d", code)
		}
	})
}

// Pages of lists of different clusters are not mixed, although the lists have one state.
func TestClusterSelector_pages(t *testing.T) {
	inMemory(t, []string{"eu-1", "eu-2", "us-1"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		selectors := []string{"", "watershed.dev/cluster!=eu-1", "watershed.dev/cluster=us-1"}
		want := []string{"eu-1/a eu-1/b eu-2/a eu-2/b us-1/a us-1/b", "eu-2/a eu-2/b us-1/a us-1/b", "us-1/a us-1/b"}
		got, next, done := make([][]string, 3), make([]string, 3), make([]bool, 3)
		for range 6 {
			for i, selector := range selectors {
				if done[i] {
					continue
				}
				query := url.Values{"limit": {"1"}, "labelSelector": {selector}}
				if next[i] != "" {
					query.Set("continue", next[i])
				}
				_, _, body := w.get("/fleet/api/v1/configmaps?" + query.Encode())
				var page []string
				page, next[i] = placed(t, body)
				got[i], done[i] = append(got[i], page...), next[i] == ""
			}
		}
		for i := range selectors {
			if strings.Join(got[i], " ") != want[i] {
				t.Errorf("%q: %q, want %q", selectors[i], got[i], want[i])
			}
		}
	})
}

// A watch with such a selector sends only the events of those clusters.
func TestClusterSelector_watch(t *testing.T) {
	inMemory(t, []string{"eu-1", "eu-2", "us-1"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		type watch struct {
			selector, want string
			body           chan string
		}
		all := []watch{
			{"watershed.dev/cluster=eu-2", "eu-2/a eu-2/b eu-2/new", nil},
			{"watershed.dev/cluster!=eu-2", "eu-1/a eu-1/b us-1/a us-1/b eu-1/new us-1/new", nil},
			{"watershed.dev/cluster in (us-1,eu-1),app=new", "eu-1/new us-1/new", nil},
			{"!watershed.dev/cluster", "", nil},
		}
		for i := range all {
			all[i].body = make(chan string, 1)
			go func() {
				_, _, body := w.get(
					"/fleet/api/v1/configmaps?watch=1&timeoutSeconds=20&watershedFleet=keyed-by-cluster&labelSelector=" + url.QueryEscape(all[i].selector),
				)
				all[i].body <- body
			}()
		}
		time.Sleep(time.Second)
		for _, name := range []string{"eu-1", "eu-2", "us-1"} {
			w.origins[name].add("new", 20)
			time.Sleep(time.Second)
		}
		for _, one := range all {
			var got []string
			for line := range strings.Lines(<-one.body) {
				var e struct {
					Type   string
					Object metav1.PartialObjectMetadata
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil || e.Type != "ADDED" {
					t.Errorf("%s: %v %s", one.selector, err, line)
				}
				got = append(got, e.Object.Annotations[encode.ClusterAnnotation]+"/"+e.Object.Name)
			}
			if strings.Join(got, " ") != one.want {
				t.Errorf("%s: %q, want %q", one.selector, got, one.want)
			}
		}
	})
}

// A program that may file objects by namespace and name must not watch several clusters
// unknowingly.
func TestFleet_watchesNeedConsent(t *testing.T) {
	inMemory(t, []string{"one", "two"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		const watch = "/fleet/api/v1/configmaps?watch=1&timeoutSeconds=1"
		const informer = watch + "&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		for _, c := range []struct {
			path   string
			header []string
			code   int
		}{
			{watch, nil, 400},
			{informer, nil, 400},
			{"/fleet/api/v1/watch/configmaps?timeoutSeconds=1", nil, 400},
			{watch, []string{"Accept", "application/vnd.kubernetes.protobuf;stream=watch,application/json"}, 400},
			{watch, []string{"Accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}, 400},
			{informer, []string{"User-Agent", "kubectl/v1.37.1 (linux/amd64) kubernetes/abc"}, 400}, // kubectl wait
			{watch, []string{"Watershed-Fleet", "yes"}, 400},
			// kubectl get -w -o json
			{watch, []string{"User-Agent", "kubectl/v1.37.1 (linux/amd64) kubernetes/abc"}, 200},
			{watch, []string{"Watershed-Fleet", "keyed-by-cluster"}, 200},
			{informer, []string{"Watershed-Fleet", "keyed-by-cluster"}, 200},
			{informer + "&watershedFleet=keyed-by-cluster", nil, 200},
			{watch, []string{"Accept", tableAccept + ",application/json"}, 200},
			{informer, []string{"Accept", tableAccept}, 200},
			{"/fleet/api/v1/configmaps?resourceVersion=0", nil, 200},
			{strings.Replace(informer, "/fleet/", "/clusters/one/", 1), nil, 200},
		} {
			code, _, body := w.get(c.path, c.header...)
			if code != c.code {
				t.Errorf("%s with %q: %d, want %d", c.path, c.header, code, c.code)
			}
			if code != http.StatusBadRequest {
				continue
			}
			if !strings.Contains(body, "BadRequest") || !strings.Contains(body, "watch /clusters/") ||
				!strings.Contains(body, "Watershed-Fleet: keyed-by-cluster") {
				t.Errorf("%s: %s", c.path, body)
			}
		}
	})
}

// The cluster is the last cell of a row of the fleet. A cluster's own table does not have
// it.
func TestFleet_clusterIsTheLastColumn(t *testing.T) {
	inMemory(t, []string{"one", "two"}, nil, func(t *testing.T, w *pipedReplica) {
		time.Sleep(10 * time.Second)
		columns := func(path string) (names []string, rows [][]any) {
			_, _, body := w.get(path, "Accept", tableAccept)
			var table metav1.Table
			if err := json.Unmarshal([]byte(body), &table); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			for _, c := range table.ColumnDefinitions {
				names = append(names, c.Name)
			}
			for _, r := range table.Rows {
				rows = append(rows, r.Cells)
			}
			return names, rows
		}
		own, _ := columns("/clusters/one/api/v1/configmaps")
		for range 2 { // the printer's own columns are not modified
			names, rows := columns("/fleet/api/v1/configmaps")
			if !slices.Equal(names, append(slices.Clone(own), "Cluster")) || len(rows) != 4 {
				t.Errorf("columns %q, want those of one cluster, %q, and Cluster: %d rows", names, own, len(rows))
			}
			for i, cells := range rows {
				if want := []string{"one", "one", "two", "two"}[i]; len(cells) != len(names) ||
					cells[len(cells)-1] != want {
					t.Errorf("row %d is %v, want %s at its end", i, cells, want)
				}
			}
		}
		if again, _ := columns("/clusters/one/api/v1/configmaps"); !slices.Equal(own, again) {
			t.Errorf("columns of one cluster: %q, and before: %q", again, own)
		}
		bookmark := func(path string) []any {
			_, _, body := w.get(path+
				"?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "Accept", tableAccept)
			for line := range strings.Lines(body) {
				var event struct {
					Type   string
					Object metav1.Table
				}
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				if event.Type == "BOOKMARK" {
					return event.Object.Rows[0].Cells
				}
			}
			t.Fatalf("%s: no bookmark in %s", path, body)
			return nil
		}
		one, all := bookmark("/clusters/one/api/v1/configmaps"), bookmark("/fleet/api/v1/configmaps")
		if !reflect.DeepEqual(all, append(one, "")) {
			t.Errorf("bookmark of the fleet has the row %v, want that of one cluster, %v, and an empty cluster", all,
				one)
		}
	})
}
