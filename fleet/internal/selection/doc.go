// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package selection decides what a fleet mirrors of a cluster: which of the resources that it serves,
// by patterns ([Selection]), and which of their objects ([Scope]). It has no state.
package selection
