// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package admission limits how much of a fleet's work is done at once.
package admission
