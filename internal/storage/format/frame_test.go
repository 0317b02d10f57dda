// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"testing"
)

// TestDamage_misplacedFrame does not accept a frame at another place.
func TestDamage_misplacedFrame(t *testing.T) {
	b := AppendFrame(nil, 7, 0, BatchFrame, 1, []byte("payload"))
	if _, _, good := ParseFrame(b, 7, 0); !good {
		t.Fatal("the frame is not accepted at its place")
	}
	if _, _, good := ParseFrame(b, 8, 0); good {
		t.Error("it is accepted in another segment")
	}
	if _, _, good := ParseFrame(b, 7, 1); good {
		t.Error("it is accepted at another offset")
	}
}
