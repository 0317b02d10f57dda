// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// TestScope_partIsNotTakenForTheWhole reads clusters of which only a namespace is
// mirrored, beside one that is whole.
func TestScope_partIsNotTakenForTheWhole(t *testing.T) {
	s, err := simulated.New(&simulated.Options{Clusters: 3, Pods: 60, Namespaces: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	one, other := s.Cluster(0).Pod(0), s.Cluster(0).Pod(59)
	inOne, inOther := 0, 0
	for i := range 60 {
		switch s.Cluster(0).Pod(i).Namespace {
		case one.Namespace:
			inOne++
		case other.Namespace:
			inOther++
		}
	}
	limited := &fleet.Scope{Namespace: one.Namespace}
	run := func(entries ...fleet.Entry) *simulatedReplica {
		w, f, _ := serve(t, s, entries, nil)
		synced, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := f.WaitForSync(synced); err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := run(fleet.Entry{Name: "part", Config: s.Cluster(0).Config(), Scope: limited},
		fleet.Entry{Name: "part-too", Config: s.Cluster(0).Config(), Scope: limited},
		fleet.Entry{Name: "whole", Config: s.Cluster(1).Config()})
	alone := run(fleet.Entry{Name: "part", Config: s.Cluster(2).Config(), Scope: limited})
	inside, outside := "/api/v1/namespaces/"+one.Namespace+"/pods", "/api/v1/namespaces/"+other.Namespace+"/pods"
	for _, test := range []struct {
		replica *simulatedReplica
		path    string
		code    int
		items   int    // -1: not a list
		warning string // "": none
	}{
		{w, "/clusters/part" + inside, http.StatusOK, inOne, ""},
		{w, "/clusters/part-too" + inside, http.StatusOK, inOne, ""},
		{w, "/clusters/part" + inside + "/" + one.Name, http.StatusOK, -1, ""},
		{w, "/clusters/part/api/v1/pods", http.StatusForbidden, -1, ""},
		{w, "/clusters/part/api/v1/pods?watch=true", http.StatusForbidden, -1, ""},
		{w, "/clusters/part" + outside, http.StatusForbidden, -1, ""},
		{w, "/clusters/part" + outside + "?watch=true", http.StatusForbidden, -1, ""},
		{w, "/clusters/part" + outside + "/" + other.Name, http.StatusForbidden, -1, ""},
		{w, "/clusters/part/api/v1/namespaces", http.StatusForbidden, -1, ""},
		{w, "/clusters/part/api/v1/namespaces/" + one.Namespace, http.StatusForbidden, -1, ""},
		{w, "/clusters/whole/api/v1/pods", http.StatusOK, 60, ""},
		{
			w, "/fleet/api/v1/pods", http.StatusOK, 60 + inOne,
			"cluster part is mirrored only in part: namespace " + one.Namespace,
		},
		{w, "/fleet" + inside, http.StatusOK, 2 * inOne, ""},
		{w, "/fleet" + outside, http.StatusOK, inOther, "left out: cluster part"},
		{alone, "/fleet" + outside, http.StatusForbidden, -1, ""},
		{alone, "/fleet/api/v1/namespaces", http.StatusForbidden, -1, ""},
		{alone, "/fleet/api/v1/pods", http.StatusOK, inOne, "cluster part is mirrored only in part"},
	} {
		resp, err := test.replica.get(t.Context(), test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != test.code {
			t.Errorf("GET %s: %s, not %d: %.200s", test.path, resp.Status, test.code, body)
			continue
		}
		if warning := strings.Join(resp.Header["Warning"], "\n"); (test.warning == "") != (warning == "") ||
			!strings.Contains(warning, test.warning) {
			t.Errorf("GET %s warns %q, not %q", test.path, warning, test.warning)
		}
		if test.code == http.StatusForbidden {
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil || status.Reason != metav1.StatusReasonForbidden ||
				!strings.Contains(status.Message, "the copy of cluster part is limited to namespace "+one.Namespace) {
				t.Errorf("GET %s: %v: %s", test.path, err, body)
			}
		}
		if test.items < 0 {
			continue
		}
		var list corev1.PodList
		if err := json.Unmarshal(body, &list); err != nil || len(list.Items) != test.items {
			t.Errorf("GET %s: %d pods, not %d: %v", test.path, len(list.Items), test.items, err)
		}
	}
	text, _ := w.read("/clusters")
	for _, want := range []string{`"aliases":["part-too"]`, `"scope":"namespace ` + one.Namespace + `"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("/clusters does not have %s: %s", want, text)
		}
	}
}
