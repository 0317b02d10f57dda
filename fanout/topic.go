// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

// topic wakes the readers that wait with the same interest.
type topic struct {
	mark mark
	// woken is closed by the first matching change, after fired is set to the revision of
	// that change.
	woken   chan struct{}
	fired   uint64
	waiting int
}
