// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package light links no other module.
package light
