// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package figures counts how a checkout of this repository is built: its
// exported identifiers, the references between files that point against the
// flow, duplicated blocks, long functions, the modules that a user links and
// words that the style guide replaces. A checkout is any working tree, so the
// same program counts an old commit and the current one.
//
// [Read] reads the files of a checkout, [Count] counts everything, and
// [Counts.Over] compares the result with a [Budget]. Each figure also has a
// function of its own, for a test that needs only one of them.
//
// # What is counted
//
// Every Go and Markdown file outside folders named testdata and outside folders
// whose name begins with a dot or an underscore. Nested modules are part of the
// checkout. A figure that says "outside tests" leaves out files that end in
// _test.go.
//
// # What it costs
//
// [Flow] and [Links] run the go command in the checkout, which compiles what is
// not in the build cache. The others only read files.
package figures
