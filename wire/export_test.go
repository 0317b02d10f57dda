// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

// KindOf is the very Kind an object has.
func KindOf(o *Object) *Kind { return o.kind }

// Views is how many values an object remembers, dead or alive.
func Views(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		n++
	}
	return n
}
