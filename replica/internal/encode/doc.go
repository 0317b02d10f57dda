// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package encode turns objects into the bytes of responses: single objects, items of
// lists, events of watches, bookmarks, and the compressed forms of them.
//
// # Guarantees
//
// The bytes are those that kube-apiserver would send. If an object cannot be encoded, the result
// is an [UnsentError], so that no response leaves the object out.
//
// # What blocks
//
// Nothing waits for a client. A caller that wants bytes that another caller is making
// waits for them.
//
// # Bounds and ownership
//
// [Blocks] and [Frames] keep bytes for other readers, within the bounds that they are made
// with. Bytes that they return are shared and must not be changed.
package encode
