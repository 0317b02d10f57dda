// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package stream splits the responses of an API server into objects and events as they
// arrive: lists, watches and single objects, in JSON and in protobuf.
//
// # Guarantees
//
// The bytes of an object are the same whether it arrived in a list, in a watch or alone. The items of a
// JSON list lack apiVersion and kind, so the package adds both, in the form that watch events have.
//
// An object whose kind, key or labels are not valid is reported as a [*wire.ObjectError] and does not affect the
// other objects. Any other fault ends the list or the watch with an error. A truncated list,
// or a response that is not a list, never looks like a complete list: [io.EOF] means that
// nothing is missing. Malformed bytes cause an error, never a panic.
//
// # What blocks
//
// [ListReader] and [WatchReader] block only on the io.Reader that they read from. An event is
// returned when its last byte has arrived. To stop a reader, close what its io.Reader reads from.
// The readers do not start goroutines.
//
// # Bounds and ownership
//
// A [ListReader] holds one object in memory at a time, however long the list is. An object or an event
// has at most 32 MiB. If the input announces a length, memory is allocated only as the bytes arrive.
// Between events, also after a large event, a [WatchReader] keeps a buffer of at most about 64 KiB.
// While [WatchReader.Wait] waits, it keeps no buffer.
package stream
