// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/examples/internal/programtest"
)

const wantDeltaFIFO = `# everything that happened to pod1 comes out together
Added : pod1 1
Updated : pod1 10
Deleted : pod1 10
# a callback for each type
Added pod1  value: 1
add callback
Updated pod1  value: 1.1
update callback
Deleted pod1  value: 1.1
delete callback
# keys come out in the order in which they went in
[{pod-1 11} {pod-2 2} {pod-3 3}]
Add Event: {pod-1 1}
Update Event: {pod-1 11}
Delete Event: {pod-1 11}
Add Event: {pod-2 2}
Add Event: {pod-3 3}
# without known objects the delete is lost
Added : nettool
Updated : nettool
Updated : nettool
# with known objects it is not
Added : nettool
Updated : nettool
Updated : nettool
Deleted : nettool
# anything with Get and All is known objects
Added : nettool
Updated : nettool
Updated : nettool
Deleted : nettool
# a list queues Replaced, and Deleted for a known object that it does not have
Replaced : pod1 1
Replaced : pod2 2
Replaced : pod1 1.1
Replaced : pod3 3
Deleted : pod2 2 (missed)
# a resync queues Sync for the known objects that are not queued
Updated : pod1 1.1
Sync : pod2 2
`

func TestRunDeltaFIFO(t *testing.T) {
	var out strings.Builder
	if err := runDeltaFIFO(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantDeltaFIFO, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	programtest.Shown(t, "go run ./examples/pipeline deltafifo", wantDeltaFIFO)
}
