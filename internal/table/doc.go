// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package table prints objects as the rows that `kubectl get` shows. An API server makes
// them for clients that request a Table.
//
// # Guarantees
//
// A built-in kind has the columns and the cells of kube-apiserver 1.37. The columns have the same names,
// types, formats, descriptions and priorities. The cells have the same text, numbers and booleans. For a
// custom resource, the columns come from its CustomResourceDefinition, and JSON paths follow the rules of
// apiextensions-apiserver.
//
// There is one exception. An autoscaler that was read as autoscaling/v1 lists its metrics without the
// CPU, so the position of the CPU among them is not known. The printer puts the CPU at the position that
// it has among the current metrics, or first if the current metrics do not include it.
//
// # Bounds and ownership
//
// A [Printer] is immutable and safe for concurrent use. It never modifies an object and
// keeps none.
package table
