// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package objectpack packs the bytes of objects, and turns packed objects into stored bytes and
// back.
//
// # Guarantees
//
// [Packer] changes how an object's bytes are stored, never the bytes: packed data is
// unpacked once and compared. Key, kind, version and labels are read without unpacking.
//
// # What blocks
//
// Nothing blocks, and no goroutines are started.
//
// # Bounds and ownership
//
// Only one goroutine at a time may pack an object; others can read it meanwhile. A packer
// holds a dictionary and some samples for each kind, about 300 KB.
package objectpack
