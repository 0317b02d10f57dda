// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package diff applies the same random operations to Watershed and to client-go and
// compares everything that is observable, after every operation. It has only tests.
//
// # What is compared with what
//
// [delta.FIFO] is compared with cache.DeltaFIFO, and [store.Store] with cache.NewIndexer. The
// queue that fills the store, whose changes become events, is compared with the same parts of
// client-go, combined as its controller combines them. The informer as a whole is compared with
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
// client-go iterates over a map for the deletions that one Replace infers, and for the Syncs of
// one Resync, so the order of both is random. The order of deletions of queued objects cannot be
// observed, because a queued object keeps its place. The other random orders come from
// KnownObjects.ListKeys, so the tests give client-go a store that lists its keys in order, as
// Watershed's does. Queue orders are then equal, not
// just similar, and are compared exactly. TestDifference_keyOrderInQueue pins that the
// order is random without this.
package diff

import (
	_ "github.com/watershed-project/watershed/delta" // for the links above
	_ "github.com/watershed-project/watershed/store" // for the links above
)
