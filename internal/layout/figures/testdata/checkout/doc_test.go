// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package checkout

// Who reads the comments of tests.
const Exported = message
