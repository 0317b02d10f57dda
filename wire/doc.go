// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package wire is what an API server sends, cut into objects: lists, watches and
// single answers, in JSON and in protobuf. An [Object] stays bytes until somebody
// looks at it.
//
// # Guarantees
//
// The bytes of an object are those the server sent, and the same whether it came
// in a list, in a watch or alone: the items of a JSON list, which do not say their
// type, are made to say it as the events of a watch do.
//
// The key, the version and the metadata scanned from the bytes are those of the
// value that apimachinery decodes from them. JSON that says twice what an object
// is, on which readers of JSON disagree, is refused.
//
// One object that cannot be filed or decoded is an [*ObjectError] and does not
// touch its neighbours. Anything else that is wrong ends the list or the watch
// with an error. A list that was cut off, and an answer that is no list, never
// look like a complete one: [io.EOF] means that nothing is missing. Malformed
// bytes are an error, never a panic.
//
// [Decode] gives everybody the same value of a type while somebody holds it, also
// when they ask at the same time. [DecodeLike] lets two states of an object share
// what has the same bytes in both.
//
// [Packer] changes how an object's bytes are kept, never what they are: what is
// packed is unpacked once and compared. Key, kind, version and labels are read
// without unpacking.
//
// # What blocks
//
// [ListReader] and [WatchReader] wait for their reader, and for nothing else. An
// event is returned when its last byte is there. To stop them, close what they
// read from. They start no goroutine.
//
// # Bounds and ownership
//
// A list is read with one object in memory, whatever its length; an object and an
// event are at most 128 MiB, and a length is not believed before the bytes are
// there. A watch holds on to 64 KiB of buffer or so between events, after a large
// one too.
//
// An object has its bytes for itself, in one piece of that size. They, and values
// from [Decode], are shared and must not be changed; values from [DecodeFresh] are
// the caller's. An object does not keep the values it was decoded into alive, a
// [Recent] does, within its bound. An object costs its bytes, its key and 96 bytes,
// and some 50 for each type it was ever decoded into.
//
// An object is packed by one goroutine at a time; others read it meanwhile. A
// packer holds a dictionary and some samples for each kind, about 300 KB.
package wire
