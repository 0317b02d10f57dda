// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "github.com/watershed-project/watershed/internal/scan"

// WellFormedLabels reports whether the labels of an object can be read to their end.
func WellFormedLabels(o *Object) bool {
	return scan.EachLabel(o.Bytes(), o.encoding == JSON, func([]byte, []byte) {})
}

// Views returns the number of values that an object refers to, dead or alive.
func Views(o *Object) (n int) {
	for v := o.views.Load(); v != nil; v = v.next {
		n++
	}
	return n
}
