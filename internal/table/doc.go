// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package table prints objects as the rows that `kubectl get` shows, which an API
// server makes for who asks for a Table.
//
// # Guarantees
//
// A built-in kind has the columns and the cells that kube-apiserver 1.37 gives
// it: names, types, formats, descriptions and priorities, and in the cells the
// same text, numbers and booleans. Custom resources are printed by the columns
// that their definition has, with the rules that apiextensions-apiserver has for
// JSON paths.
//
// One thing cannot be told from what a server sends: an autoscaler that was read
// as autoscaling/v1 does not say where among its metrics that of the CPU stood.
// It is printed where the current metrics have it, or first.
//
// # What is shared
//
// A [Printer] does not change after it was made and serves any number of
// goroutines. It never changes an object and keeps none.
package table
