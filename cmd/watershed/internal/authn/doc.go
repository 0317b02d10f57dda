// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package authn authenticates the callers of the replica.
package authn
