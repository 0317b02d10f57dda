// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package diff plays the same random operations into Watershed and into
// client-go and compares everything that can be seen, after every operation. It
// has only tests.
//
// # What is compared with what
//
// [delta.FIFO] with cache.DeltaFIFO, [store.Store] with cache.NewIndexer, and
// the two in a row, queue into store into events, with the same pieces of
// client-go put together as its controller does. And the informer, as a whole, with
// cache.SharedIndexInformer, on histories of a model API server (informer_*). Where
// Watershed means to differ, a TestDifference pins both sides; docs/semantics.md
// lists them.
//
// # Seeds
//
// A sequence is a function of its seed. A failure prints the seed and all
// operations up to it, and is played again with
//
//	go test ./diff -run 'TestFIFO$' -diff.seed=N -v
//
// Every run takes new seeds, counted from a base that it prints and that
// -diff.base sets.
//
// # Order
//
// client-go leaves two orders to the iteration of a map: of the deletions that
// one Replace infers, and of the Syncs of one Resync. The first half of the
// former, deletions of queued objects, cannot be seen: an object that is queued
// keeps its place. All the rest of the randomness comes in through
// KnownObjects.ListKeys, so the tests give client-go a store that lists its keys
// in order, as Watershed's does. Queue orders are then equal, not just similar,
// and are compared as they are. That the order without this is random is pinned
// by TestDifference_keyOrderInQueue.
package diff

import (
	_ "github.com/watershed-project/watershed/delta" // for the links above
	_ "github.com/watershed-project/watershed/store" // for the links above
)
