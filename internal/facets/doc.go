// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package facets keeps values of objects outside their packed bytes, so that conditions on
// them need no decoding. Labels are already kept this way; facets are typed and can be any
// field.
//
// A [Facet] is a field of a kind, named by its path. A [Plan] has the facets of one kind. It
// finds all of them in one scan of an object's bytes, or in two if a transformation changes
// more than metadata, and makes a [Record] that the object keeps. A [Condition] reads records.
//
// # Guarantees
//
// A facet has the same value as the field of the object decoded as unstructured. A zero value
// in protobuf that JSON would omit counts as missing. A facet that cannot be computed is
// unknown, and so are all facets of an object without a record. Readers get [Unknown] for it,
// never [No].
//
// # What blocks
//
// Interning takes the lock of the plan, for about 50 ns per value. Readers take no lock.
//
// # Bounds and ownership
//
// A record belongs to its object and is freed with it. It costs 56 bytes and its own values,
// some 45 for a pod. The values that objects share are interned, see [Plan.Interned]. A facet
// is unknown if its list has more than 64 elements or one of its values is longer than 1 KiB.
package facets
