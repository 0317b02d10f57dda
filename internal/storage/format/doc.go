// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package format encodes and decodes the files of mirrored objects. It knows what the bytes of one
// file mean, but not which files a mirror needs.
//
// The directory of a cluster has three kinds of files. Each file begins with the same header: a
// magic number for the kind of file, the version of the format, and a checksum.
//
//   - A segment of the log is a sequence of frames of many mirrors. The first frame is a
//     [SegmentHeader]. A [Declaration] gives a mirror its number in the segment, and says how the
//     mirror's frames continue its frames in the previous segment. Batches and small complete
//     states follow. Some frames are an index by key, which package keyindex encodes.
//   - A snapshot is a large complete state: chunks of objects in the order of their keys, then a
//     [Footer] that describes the chunks.
//   - A note is a file whose content the caller of package storage chooses.
//
// For example, this segment has two mirrors, and the second mirror is small. M is a declaration,
// B a batch, S a complete state, and k an index by key; a number says which mirror a frame belongs to:
//
//	header of the file | SegmentHeader | M 1 pods | B 1 | M 2 nodes | S 2 | B 1 | B 2 | k
//
// A batch, a state and a chunk are sequences of items. An [Encoder] writes items, a [Decoder] parses
// items, and a [Restorer] turns items into objects. The objects of most kinds are packed with
// dictionaries, which are files of their own: see [Dictionaries]. The items of Secrets have encrypted
// bodies, and the dictionaries of Secrets are encrypted too: see [Seal].
//
// The packed bytes of an object can be a difference from other packed bytes, its base. In a batch, the
// base is in the item itself, or in the last item of the same key with a base, in the same segment. In
// a complete state, the base is in the item itself, or in an item before it in the same frame or chunk.
// For example, a pod has three states in a segment. The first two are differences from a state that was
// written in the segment before, and the third one could only be packed alone:
//
//	pod at 7: base, difference | pod at 8: difference | pod at 9: packed alone, a base for the next ones
//
// # Guarantees
//
// A checksum covers every byte. The checksum of a frame also covers the position of the frame in the
// log, so bytes that were damaged or moved are rejected. A dictionary is durable before an item may
// refer to it. A difference and its base are in the same file. Malformed input is an error. Reading
// malformed input never allocates more bytes than the file has.
//
// # What blocks
//
// [Files] and the functions that have a path read, write and sync in the goroutine of the caller.
// The lock of [Dictionaries] is held during file operations only in [Dictionaries.Sweep], which
// removes dictionaries that no file refers to.
//
// # Bounds and ownership
//
// A frame has at most 40 MiB. A frame or an item refers to the bytes that it was parsed from, and
// keeps these bytes in memory. A difference keeps the item with its base too. A restored object has its
// own bytes, and shares its base with other objects. A [Decoder] keeps the items with a base of one
// segment, and an [Encoder] some 25 bytes for each key that has changed in it. A dictionary that was
// loaded is freed when no object uses it.
package format
