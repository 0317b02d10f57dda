// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package document declares the JSON documents that a replica serves besides objects and lists of
// the Kubernetes API: the clusters with their states, and changes of the past. Package replica and
// the packages below it write the documents, and the commands of the program read them.
//
// # Guarantees
//
// The types are data only. A field that has no value is left out, unless its absence would be
// misread.
//
// # Bounds and ownership
//
// The document has the fields that the caller may see. The packages that write it bound the texts
// that come from clusters.
package document
