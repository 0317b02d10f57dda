// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"iter"
	"maps"
)

// Labels yields the labels that a client may use.
func (s *Set) Labels() iter.Seq[string] { return maps.Keys(s.labels) }
