// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/examples/internal/programtest"
)

const wantListeners = `# each at its own pace
    1s first  OnAdd: pod0
    2s first  OnAdd: pod1
    3s first  OnAdd: pod2
 3.25s second OnAdd: pod0
    4s first  OnAdd: pod3
    5s first  OnAdd: pod4
  5.5s second OnAdd: pod1
 7.75s second OnAdd: pod2
   10s second OnAdd: pod3
12.25s second OnAdd: pod4
# the log keeps three changes, and the second listener is slower than that
    1s first  OnAdd: pod0
    2s first  OnAdd: pod1
    3s first  OnAdd: pod2
 3.25s second OnAdd: pod0
    4s first  OnAdd: pod3
    5s first  OnAdd: pod4
  5.5s second OnAdd: pod1
    6s first  OnAdd: pod5
    7s first  OnAdd: pod6
 7.75s second OnAdd: pod2
 7.75s second was too slow, and continues with the 7 existing pods
    8s first  OnAdd: pod7
10.25s second OnAdd: pod7
`

func TestRunListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := runListeners(t.Context(), &out, time.Second); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantListeners, out.String()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
	programtest.Shown(t, "go run ./examples/pipeline listener", wantListeners)
}

func TestRunListeners_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		begin := time.Now()
		var out strings.Builder
		if err := runListeners(ctx, &out, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(begin); took != 2500*time.Millisecond {
			t.Errorf("run took %s", took)
		}
	})
}
