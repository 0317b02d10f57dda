// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package undecodable

import (
	"runtime"
	"testing"

	"github.com/watershed-project/watershed/wire"
)

// TestLog_dropsFreedStates adds more states than the log may remember, and keeps one.
func TestLog_dropsFreedStates(t *testing.T) {
	var l Log
	kept := new(wire.Object)
	for range 4 {
		for range minLimit {
			if !l.First(new(wire.Object)) {
				t.Fatal("a state that was never added is known")
			}
		}
		l.First(kept)
		runtime.GC()
	}
	if n := len(l.states); n > 2*minLimit {
		t.Errorf("%d states are remembered, of which 1 is alive", n)
	}
	if l.First(kept) {
		t.Error("a state that is alive was forgotten")
	}
}
