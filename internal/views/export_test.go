// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package views

// Len returns the number of views, also of values that nobody holds any more.
func (l *List) Len() (n int) {
	for v := l.first.Load(); v != nil; v = v.next {
		n++
	}
	return n
}
