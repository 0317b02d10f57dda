// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package jsondecode

import "reflect"

// Fast reports whether the fast decoder decodes a text into an empty value.
func Fast(text []byte, into any) bool {
	return fast(text, reflect.ValueOf(into))
}
