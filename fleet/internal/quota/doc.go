// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package quota limits the memory that objects may take: those of one cluster by an [Account], and
// those of the whole process by [Process].
//
// A source opens a [Usage] of its cluster's account and charges each object that it is about to
// pass on to its informer. The charge returns an error if the cluster would exceed its limits, or
// if the process has no memory. Before a first list, the usage reserves the memory that the list is
// expected to take. The program tells [Process] how much memory is left: it measures that itself.
//
// # Guarantees
//
//   - The objects of a cluster exceed the limit of their bytes by at most a sixty-fourth, and by
//     an eighth while a resource is listed again.
//   - One resource takes at most three quarters of what its cluster may take.
//   - Lists that run at the same time count before a reading of the memory includes them.
//
// # What blocks
//
// [Usage.Await] waits for memory until its context ends, and [Usage.Charge] for at most five
// seconds during a first list.
//
// # Bounds and ownership
//
// The mu of an account guards the sums of its usages, and the mu of the room the demands of the
// first lists. A usage belongs to the goroutine of its source.
package quota
