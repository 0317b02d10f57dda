// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package collection

import (
	"fmt"
	"testing"
)

// TestChanged_isBounded has more clusters leave than are remembered.
func TestChanged_isBounded(t *testing.T) {
	var l lastChanges
	parts := []*clusterPart{{cluster: "stays"}}
	l.set("stays", 1, parts)
	for i := range 3 * maxLeft {
		l.set(fmt.Sprint(i), uint64(i+2), parts)
		if len(l.revisions) > len(parts)+maxLeft {
			t.Fatalf("%d clusters are remembered", len(l.revisions))
		}
		if last := l.of(Clusters{fmt.Sprint(i)}); last < uint64(i+2) {
			t.Fatalf("cluster %d changed at %d, want at least %d", i, last, i+2)
		}
	}
	if last := l.of(Clusters{"0", "stays"}); last < 2 {
		t.Errorf("the first cluster changed at %d", last)
	}
}
