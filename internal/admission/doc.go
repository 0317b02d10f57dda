// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package admission limits how much of a fleet's work is done at once: lists by a [Gate] and a
// [Throttle], files that are loaded by a [LoadQueue], and other work by [Slots].
package admission
