// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// The audit events of the program, which its own test has recorded, decode strictly with the
// type of kube-apiserver, and lose nothing.
func TestAudit_eventsAreUpstreams(t *testing.T) {
	text, err := os.ReadFile(
		filepath.Join("..", "..", "cmd", "watershed", "internal", "audit", "testdata", "events.jsonl"),
	)
	if err != nil {
		t.Fatal(err)
	}
	stages := map[auditv1.Stage]int{}
	for line := range bytes.Lines(text) {
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		var e auditv1.Event
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.GroupVersionKind() != auditv1.SchemeGroupVersion.WithKind("Event") || e.Level != auditv1.LevelMetadata {
			t.Errorf("%s: %v at level %s", line, e.GroupVersionKind(), e.Level)
		}
		stages[e.Stage]++
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		want, got := fieldsOf(t, line), fieldsOf(t, again)
		delete(got["responseStatus"].(map[string]any), "metadata") // always empty
		if !reflect.DeepEqual(got, want) {
			t.Errorf("upstream's type has %v, want %v", got, want)
		}
	}
	if stages[auditv1.StageResponseComplete] == 0 || stages[auditv1.StageResponseStarted] == 0 ||
		stages[auditv1.StagePanic] == 0 {
		t.Errorf("stages are %v: one is missing", stages)
	}
}

// fieldsOf returns a JSON object.
func fieldsOf(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}
