// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package wire has the objects of Kubernetes as the API server sends them, in JSON and in
// protobuf. An [Object] stays encoded until it is read.
//
// # Guarantees
//
// The bytes of an object are those that the server sent. If the items of a JSON list have no
// apiVersion and kind, both are added.
//
// The key, the version, the labels and the other metadata are read from the bytes without decoding
// the object, and are the same as in the value that apimachinery decodes. JSON that repeats a
// member which identifies the object is rejected, because JSON decoders disagree on which one
// counts.
//
// An object that has no usable key, or that cannot be decoded, is reported as an [*ObjectError]. Malformed bytes
// cause an error, never a panic.
//
// [Decode] returns the same value of a type to all callers while one of them holds it,
// also when they call at the same time. [Object.DecodeIntoLike] lets two states of an
// object share the parts that have the same bytes in both.
//
// The informers of this module can pack an object, which changes how its bytes are stored,
// never the bytes. Key, kind, version and labels are read without unpacking.
//
// # What blocks
//
// Nothing blocks, and no goroutines are started.
//
// # Bounds and ownership
//
// An object is at most 32 MiB. A key has at most 1 KiB, an apiVersion and a kind 512 bytes
// each, and errors quote only the beginning of what was read.
//
// An object owns its bytes, in one allocation of exactly that size. The bytes, and values
// from [Decode], are shared and must not be modified. The caller owns values from
// [DecodeFresh]. An object does not keep its decoded values alive. It costs its bytes, its
// key and 96 bytes, and about 50 for each type it was ever decoded into.
package wire
