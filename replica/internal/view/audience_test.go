// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestSets_areBounded has more callers and lists than are remembered. One caller does not
// displace the others.
func TestSets_areBounded(t *testing.T) {
	var s Sets
	var now uint64
	reserve := func() uint64 { now++; return now }
	first := s.began("quiet", NewListID("pods"), "a", reserve)
	if again := s.began("quiet", NewListID("pods"), "a", reserve); again != first {
		t.Errorf("the set began at %d, then at %d", first, again)
	}
	for i := range 3 * maxSets {
		s.began("greedy", NewListID(fmt.Sprint(i)), "a", reserve)
	}
	if n := len(s.callers["greedy"].lists); n != maxSetsOfCaller || s.total != n+1 {
		t.Errorf("a caller has %d lists, all have %d", n, s.total)
	}
	if again := s.began("quiet", NewListID("pods"), "a", reserve); again != first {
		t.Errorf("another caller is displaced: %d, then %d", first, again)
	}
	for i := range 2 * maxSets {
		s.began(fmt.Sprint(i), NewListID("pods"), "a", reserve)
	}
	if s.total != maxSets || len(s.callers) != maxSets || s.recent.Len() != maxSets {
		t.Errorf("%d lists of %d callers are remembered", s.total, len(s.callers))
	}
	if again := s.began("quiet", NewListID("pods"), "a", reserve); again == first {
		t.Error("a caller that is forgotten does not begin again")
	}
	was := s.began("x", NewListID("pods"), "a", reserve)
	if other := s.began("x", NewListID("pods"), "b", reserve); other <= was {
		t.Errorf("another set began at %d, the one before at %d", other, was)
	}
	if back := s.began("x", NewListID("pods"), "a", reserve); back <= was+1 {
		t.Errorf("the first set began again at %d", back)
	}
	if again := s.restart("x", NewListID("pods"), "a", reserve); again != now {
		t.Errorf("restarted at %d, now is %d", again, now)
	}
}

// TestSets_keepNoSelectors remembers lists with long selectors.
func TestSets_keepNoSelectors(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var s Sets
	before := heap()
	for i := range 100 {
		s.began("a", NewListID("pods", strings.Repeat("x", 1<<20)+fmt.Sprint(i)), "*", func() uint64 { return 1 })
	}
	if kept := int64(heap()) - int64(before); kept > 10<<20 {
		t.Errorf("100 lists with selectors of 1 MiB keep %d bytes", kept)
	}
	runtime.KeepAlive(&s)
}

// TestSeal_bindsEveryPart: tokens fit only the parts that they were sealed with.
func TestSeal_bindsEveryPart(t *testing.T) {
	key := NewSealKey()
	seals := []Seal{
		key.Seal("a", "b", "c"), key.Seal("ab", "", "c"), key.Seal("a", "bc"), key.Seal("a", "b", "c", ""),
		key.Seal("b", "b", "c"), NewSealKey().Seal("a", "b", "c"),
	}
	for i, seal := range seals {
		made := token{Version: 7, Start: "x"}
		made.Seal = seal.sum(made)
		for j, other := range seals {
			if other.fits(made) != (i == j) {
				t.Errorf("seal %d fits %d: %t", i, j, i != j)
			}
		}
		changed := made
		if changed.Start = "y"; seal.fits(changed) {
			t.Errorf("seal %d fits another token", i)
		}
	}
	if open := key.Seal(""); open.sum(token{}) != "" || !open.fits(token{Seal: "x"}) {
		t.Error("a token without a caller is bound")
	}
}
