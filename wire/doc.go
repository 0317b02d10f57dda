// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package wire splits the responses of an API server into objects: lists, watches and
// single objects, in JSON and in protobuf. An [Object] stays encoded until it is read.
//
// # Guarantees
//
// The bytes of an object are those that the server sent. They are the same whether it
// arrived in a list, in a watch or alone: the items of a JSON list lack apiVersion and
// kind, so these are added in the form that watch events have.
//
// The key, the version, the labels and the other metadata scanned from the bytes are those of the value
// that apimachinery decodes from them. JSON that repeats a member which identifies the
// object is rejected, because JSON decoders disagree on which one counts.
//
// An object that cannot be filed or decoded is reported as an [*ObjectError] and does not
// affect the other objects. Any other fault ends the list or the watch with an error. A
// truncated list, or a response that is not a list, never looks like a complete list:
// [io.EOF] means that nothing is missing. Malformed bytes cause an error, never a panic.
//
// [Decode] returns the same value of a type to all callers while one of them holds it,
// also when they call at the same time. [Object.DecodeIntoLike] lets two states of an
// object share the parts that have the same bytes in both.
//
// [Packer] changes how an object's bytes are stored, never the bytes: packed data is
// unpacked once and compared. Key, kind, version and labels are read without unpacking.
//
// # What blocks
//
// [ListReader] and [WatchReader] block only on the io.Reader that they read from. An
// event is returned when its last byte has arrived. To stop them, close the source of
// that io.Reader. They do not start goroutines.
//
// # Bounds and ownership
//
// A list is read with one object in memory, whatever its length. An object and an event
// are at most 32 MiB, and memory for an announced length is allocated only as the bytes
// arrive. A key has at most 1 KiB, an apiVersion and a kind 512 bytes each, and errors
// quote only the beginning of what was read. A watch keeps a buffer of at most about 64 KiB between
// events, also after a large one, and none while [WatchReader.Wait] waits.
//
// An object owns its bytes, in one allocation of exactly that size. The bytes, and values
// from [Decode], are shared and must not be modified. The caller owns values from
// [DecodeFresh]. An object does not keep its decoded values alive; a [Recent] does,
// within its bound. An object costs its bytes, its key and 96 bytes, and about 50 for
// each type it was ever decoded into.
//
// Only one goroutine at a time may pack an object; others can read it meanwhile. A packer
// holds a dictionary and some samples for each kind, about 300 KB.
package wire
