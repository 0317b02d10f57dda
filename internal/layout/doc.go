// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package layout has no code: its tests hold the repository to the rules that
// CONTRIBUTING.md gives for packages, imports, files and options.
package layout
