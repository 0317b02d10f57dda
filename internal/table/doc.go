// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package table prints objects as the rows that `kubectl get` shows. An API server makes
// them for clients that request a Table.
//
// # Guarantees
//
// A built-in kind has the columns and the cells of kube-apiserver 1.37: names, types,
// formats, descriptions and priorities, and in the cells the same text, numbers and
// booleans. Custom resources are printed by the columns of their definition, with the
// rules of apiextensions-apiserver for JSON paths.
//
// There is one exception, because a server does not send the information: an autoscaler
// that was read as autoscaling/v1 does not contain the position of the CPU among its
// metrics. It is printed at its position among the current metrics, or first.
//
// # Bounds and ownership
//
// A [Printer] is immutable and safe for concurrent use. It never modifies an object and
// keeps none.
package table
