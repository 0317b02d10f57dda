// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package direct is linked by links.
package direct

import _ "example.com/indirect"
