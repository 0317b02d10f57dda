// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/examples/internal/programtest"
)

const wantIndexer = `in ns1: ns1/pod1 pod1
app=l1: [ns1/pod1]
app=l2: ns2/pod2 map[app:l2]
apps: [l1 l2]
app=l1 then: [ns1/pod1]
app=l1 now: [ns1/pod1 ns1/pod3]
`

func TestRunIndexer(t *testing.T) {
	var out strings.Builder
	if err := runIndexer(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantIndexer, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	programtest.Shown(t, "go run ./examples/pipeline indexer", wantIndexer)
}
