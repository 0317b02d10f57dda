// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package read answers a get, a list or a watch of one resource, the same way for one cluster and for the fleet.
// It negotiates the form of the response, reads from a view, encodes with package encode and writes with package
// respond: objects, lists, events, tables and scales, in JSON, protobuf or YAML. It also knows which
// subresources can be made from the object alone, such as status and scale.
//
// # Guarantees
//
// A response is the one that kube-apiserver would send for the same objects. If an object cannot be encoded, the
// response ends with an error: no object is left out.
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
