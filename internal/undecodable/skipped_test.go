// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package undecodable

import (
	"errors"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// TestLoop_failureOfAnEarlierChange reports a failure after the reader has gone on: it
// must not change what the reader receives next.
func TestLoop_failureOfAnEarlierChange(t *testing.T) {
	bad, good, next := new(wire.Object), new(wire.Object), new(wire.Object)
	decodes := func(o *wire.Object) bool { return o != bad }
	var l Loop[string]
	first := l.Next("a", Change{Type: delta.Added, New: bad}, decodes)
	l.Next("a", Change{Type: delta.Updated, Old: bad, New: good}, decodes)
	first.Fallback(errors.New("undecodable"), "a", decodes)
	if c := l.Next("a", Change{Type: delta.Updated, Old: good, New: next}, decodes); c.Type != delta.Updated ||
		c.Old != good {
		t.Errorf("the next change is %s, from the last state: %v", c.Type, c.Old == good)
	}
	if n := len(l.skipped.last); n != 0 {
		t.Errorf("%d objects count as skipped", n)
	}
}
