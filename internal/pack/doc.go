// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package pack stores the bytes of objects in less space. A [Dictionary] has what objects
// of a kind have in common, and a difference describes an object by another one. A
// [Trainer] makes the dictionaries of one kind from samples. The package does not know
// what an object is: it packs any bytes.
//
// # Guarantees
//
// Packing never changes the bytes: packed data is unpacked once and compared. A
// dictionary that no longer fits is replaced, and freed once no body is packed with it.
//
// # Bounds and ownership
//
// When more than 64 KiB of a kind have been packed, the kind costs about 300 KB for its dictionary
// and its samples, within the limit of [NewTrainers]. Bodies and dictionaries never change.
package pack
