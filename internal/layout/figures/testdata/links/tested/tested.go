// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package tested is linked by tests only.
package tested
