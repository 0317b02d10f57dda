// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package links links two other modules.
package links

import (
	_ "fmt"

	_ "example.com/direct"
	_ "example.com/links/light"
)
