// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package layout reads the Go files of a checkout and counts them. Its tests hold the repository to the
// rules that CONTRIBUTING.md gives for packages, imports, files and options; the program size prints the
// counts.
package layout
