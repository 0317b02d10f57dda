// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"fmt"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// TestDamage_lostDictionary does not use a number of a dictionary after a lost frame, which
// may have named others.
func TestDamage_lostDictionary(t *testing.T) {
	id := identify("pods")
	packer := trainedPacker(t)
	e := format.NewEncoder(id, format.KindOf(id), packer)
	e.Ready = func(*pack.Dictionary) bool { return true }
	o := newObject(t, "shop/a", 8, fmt.Sprintf("%0200d", 1))
	items, err := e.Append(nil, format.Added(o.Key(), o), true)
	must(t, err)
	payload := append(format.AppendBatch(nil, keyindex.Head{Version: 8}, e.Sums, 1), items...)
	c := chain{}
	must(t, c.declare(&format.Declaration{Identity: id, Link: format.Restarts, Version: 7}))
	if done, err := c.frame(format.StateFrame, payload); err != nil || done == nil || done.items[0].Dictionary == nil {
		t.Fatalf("%+v, %v", done, err)
	}
	c.damage()
	if _, err := c.frame(format.StateFrame, payload); err == nil {
		t.Error("a dictionary is used by its number after a lost frame")
	}
	must(t, c.declare(&format.Declaration{Identity: id, Link: format.Restarts, Version: 7}))
	if _, err := c.frame(format.StateFrame, payload); err != nil {
		t.Error(err)
	}
}

// TestHistory_removedBeforeAGap begins at a declared gap. If changes before it were removed as well,
// it is not known when the gap begins.
func TestHistory_removedBeforeAGap(t *testing.T) {
	since := time.Now()
	last, next := since.Add(time.Second), since.Add(2*time.Second)
	d := format.Declaration{Link: format.Restarts, Version: 9, Time: next, Gap: &format.Stamp{Version: 7, Time: last}}
	for begin, want := range map[time.Time]format.Stamp{since: {}, last: {Version: 7, Time: last}} {
		if got := (&chain{}).gapBefore(&d, begin); got == nil || *got != want {
			t.Errorf("since %v: %+v instead of %+v", begin, got, want)
		}
	}
}
