// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package checkout has a comment for which nobody is to blame.
package checkout

/* Tell
   somebody */

const message = "told in a string, which is not a comment"
