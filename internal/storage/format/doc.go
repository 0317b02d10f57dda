// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package format encodes and decodes the files of mirrored objects. It knows what the bytes of one
// file mean, but not which files a mirror needs.
//
// A folder of a cluster has three kinds of files. Each begins with the same head: a magic, the
// version of the format and a checksum.
//
//   - A segment of the log is a sequence of frames of many mirrors. The first frame is a
//     [SegmentHeader]. A [Declaration] gives a mirror its number in the segment, and says how its
//     frames continue those of the segment before. Batches and small complete states follow,
//     and now and then an index by key, which package keyindex encodes.
//   - A snapshot is a large complete state: chunks of objects in the order of their keys, then a
//     [Footer] that describes them.
//   - A note is a text of the user of package storage.
//
// For example, a segment with two mirrors, of which the second one is small:
//
//	head | header | M 1 pods | B 1 | M 2 nodes | S 2 | B 1 | B 2 | k
//
// A batch, a state and a chunk are a sequence of items. An [Encoder] makes them, a [Decoder] parses
// them, and a [Restorer] makes objects of them. The objects of most kinds are packed with
// dictionaries, which are files of their own: see [Dictionaries]. The bodies of the items of
// Secrets, and their dictionaries, are encrypted: see [Seal].
//
// # Guarantees
//
// Every byte is covered by a checksum, and the checksum of a frame covers its place in the log as
// well: bytes that were damaged or moved are not accepted. A dictionary is durable before an item
// may name it. Malformed input is an error. It does not allocate more than the file has.
//
// # What blocks
//
// [Files] and the functions that have a path read, write and sync in the goroutine of the caller.
// The lock of [Dictionaries] is held only while
// dictionaries that no file names are removed.
//
// # Bounds and ownership
//
// A frame has at most 40 MiB. Frames and items refer to the bytes that they were parsed from, and
// keep them alive. A restored object has its own bytes. A dictionary that was loaded is freed when
// no object uses it.
package format
