// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package expression compiles and evaluates the expressions of queries. They are CEL, the language of
// Kubernetes' admission policies, with the libraries of Kubernetes 1.37 except for authorization. The
// variables are object (with the fields of its JSON), cluster (name, labels and version) and now.
//
// [Compile] reads an expression. [Expression.Check] checks it against the OpenAPI schemas of a kind,
// which can differ between clusters. [Expression.Conjuncts] splits a condition into parts that a
// planner can evaluate one by one, and [Expression.Paths] returns which fields of the object a part
// reads. A part whose fields are known is evaluated with [Expression.From], without the object.
//
// # Guarantees
//
// The result depends on the object, the cluster and now, and not on a schema: an expression has one
// meaning in all clusters. Evaluation from known values has the result that evaluation on the object
// has. A missing field is an error of the evaluation unless the expression asks for it with has() or
// with the optional syntax. A caller should count such errors and treat the object as not matching.
//
// # What blocks
//
// Nothing waits, except that [Cache.Document] calls a function of the caller that may read from a
// cluster. Evaluation ends with an error soon after its context does.
//
// # Bounds and ownership
//
// The constants in limits.go bound the text, its depth and its regular expressions, and the work of one
// evaluation. The work is counted in units of about 100 ns. Each result has its cost in these units, so
// that the caller can limit the sum over many objects. An ordinary compiled expression takes 20 to
// 40 KiB, the largest about 2 MiB. It can be used by several goroutines, and keeps no objects. A [Cache]
// bounds how many are kept.
package expression
