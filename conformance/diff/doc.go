// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package diff applies the same random operations to Watershed and to client-go and
// compares everything that is observable, after every operation. It has only tests.
//
// # What is compared with what
//
// [delta.FIFO] is compared with cache.DeltaFIFO, [store.Store] with cache.NewIndexer, and
// the two in a row, queue into store into events, with the same parts of client-go
// combined as its controller does. The informer as a whole is compared with
// cache.SharedIndexInformer, on histories of a model API server (informer_*). Where
// Watershed differs on purpose, a TestDifference pins both sides; docs/semantics.md lists
// them.
//
// # Seeds
//
// A sequence is a function of its seed. A failure prints the seed and all operations up
// to it, and is repeated with
//
//	go test ./diff -run 'TestFIFO$' -diff.seed=N -v
//
// Every run uses new seeds, counted from a base that it prints and that -diff.base sets.
//
// # Order
//
// client-go leaves two orders to the iteration of a map: of the deletions that one
// Replace infers, and of the Syncs of one Resync. The first half of the former, deletions
// of queued objects, is not observable: an object that is queued keeps its place. All
// other randomness comes from KnownObjects.ListKeys, so the tests pass client-go a store
// that lists its keys in order, as Watershed's does. Queue orders are then equal, not
// just similar, and are compared exactly. TestDifference_keyOrderInQueue pins that the
// order is random without this.
package diff

import (
	_ "github.com/watershed-project/watershed/delta" // for the links above
	_ "github.com/watershed-project/watershed/store" // for the links above
)
