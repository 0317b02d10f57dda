// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package cycle has a cycle of three files. The reference from c.go to a.go is
// the cheapest to remove.
package cycle

func a() {
	b()
	b()
}
