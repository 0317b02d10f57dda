// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package facets keeps values of objects outside their packed bytes, so that conditions on
// them need no decoding: as the labels of a packed object, but typed, and from any field.
//
// A [Facet] is a field of a kind, named by its path. A [Plan] has the facets of one kind. It
// scans the bytes of an object once for all of them, and makes a [Record] that the object
// keeps. A [Condition] reads records.
//
// # Guarantees
//
// A facet has the value that the field has in the JSON of the object, as decoding it into an
// unstructured object would return it; a field of protobuf that the JSON would leave out has
// none. A facet that cannot be computed is unknown, and so are all facets of an object without
// a record. Readers get [Unknown] for it, never [No].
//
// # What blocks
//
// Interning takes the lock of the plan, for about 50 ns per value. Readers take no lock.
//
// # Bounds and ownership
//
// A record belongs to its object and is freed with it. It costs 56 bytes and its own values,
// some 45 for a pod. The values that objects share are interned, see [Plan.Interned]. An
// object has at most 64 elements of a list, and 1 KiB of one value; what is longer is unknown.
package facets
