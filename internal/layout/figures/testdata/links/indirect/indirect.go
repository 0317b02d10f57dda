// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package indirect is linked through direct.
package indirect
