// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import "github.com/watershed-project/watershed/internal/scan"

// WellFormedLabels reports whether the labels of an object can be read to their end.
func WellFormedLabels(o *Object) bool {
	return scan.EachLabel(o.Bytes(), o.encoding == JSON, func([]byte, []byte) {})
}
