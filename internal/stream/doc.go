// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package stream splits the responses of an API server into objects and events as they
// arrive: lists, watches and single objects, in JSON and in protobuf.
//
// # Guarantees
//
// The bytes of an object are the same whether it arrived in a list, in a watch or alone: the
// items of a JSON list lack apiVersion and kind, so these are added in the form that watch
// events have.
//
// An object that cannot be filed is reported as a [*wire.ObjectError] and does not affect the
// other objects. Any other fault ends the list or the watch with an error. A truncated list,
// or a response that is not a list, never looks like a complete list: [io.EOF] means that
// nothing is missing. Malformed bytes cause an error, never a panic.
//
// # What blocks
//
// [ListReader] and [WatchReader] block only on the io.Reader that they read from. An event is
// returned when its last byte has arrived. To stop them, close the source of that io.Reader.
// They do not start goroutines.
//
// # Bounds and ownership
//
// A list is read with one object in memory, whatever its length. An object and an event are
// at most 32 MiB, and memory for an announced length is allocated only as the bytes arrive. A
// watch keeps a buffer of at most about 64 KiB between events, also after a large one, and
// none while [WatchReader.Wait] waits.
package stream
