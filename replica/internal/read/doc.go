// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package read answers a get, a list or a watch of one resource, the same way for one cluster and for the fleet.
// It negotiates the form of the response, reads from a view, encodes with package encode and writes with package
// respond: objects, lists, events, tables and scales, in JSON, protobuf or YAML. It also knows which
// subresources are made from the object, so that a copy of the object has them.
//
// # Guarantees
//
// A response is that of kube-apiserver for the same objects. An object that cannot be encoded ends the response: it
// is never left out.
//
// # What blocks
//
// [Reader.Serve] waits for its client, and up to 3 s for a version that the copy has not reached. A watch waits for
// changes until its deadline.
//
// # Bounds and ownership
//
// A response is written while it is made, a block of neighbouring objects at a time. A watch has a buffer of 64 KB
// only while it has something to write.
package read
