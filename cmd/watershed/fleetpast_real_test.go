// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/document"
)

// checkFleetPast compares the past of the fleet with the past of its only cluster.
func checkFleetPast(t *testing.T, cluster, fleet *pastReader, at time.Time) {
	t.Helper()
	query := url.Values{"at": {at.Format(time.RFC3339Nano)}}
	want := cluster.list("/api/v1/configmaps", maps.Clone(query)).Items
	query.Set("limit", "5")
	var got []map[string]any
	for {
		code, _, body := fleet.get("/api/v1/configmaps", query)
		var page pastList
		if err := json.Unmarshal(body, &page); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		got = append(got, page.Items...)
		if page.Continue == "" {
			break
		}
		query.Set("continue", page.Continue)
	}
	for _, item := range got {
		meta := item["metadata"].(map[string]any)
		if notes, _ := meta["annotations"].(map[string]any); len(notes) != 1 || notes["watershed.dev/cluster"] != "a" {
			t.Errorf("the annotations are %v", notes)
		}
		delete(meta, "annotations")
	}
	if !reflect.DeepEqual(got, want) || len(want) < 3 {
		t.Errorf("the fleet had %d objects, and the cluster %d", len(got), len(want))
	}
	changes := func(from *pastReader) (all document.ChangeList) {
		code, _, body := from.get("/api/v1/namespaces/red/configmaps", url.Values{"changes": query["at"]})
		if err := json.Unmarshal(body, &all); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		for i := range all.Items {
			all.Items[i].Cluster = ""
		}
		return all
	}
	if got, want := changes(fleet), changes(cluster); !reflect.DeepEqual(got, want) || len(want.Items) < 3 {
		t.Errorf("the fleet has %d changes, and the cluster %d", len(got.Items), len(want.Items))
	}
}
