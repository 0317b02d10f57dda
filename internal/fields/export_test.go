// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fields

import (
	"iter"
	"maps"
)

// Supports reports whether a client may use a label.
func (s *Set) Supports(label string) bool {
	_, ok := s.labels[label]
	return ok
}

// Labels yields the labels that a client may use.
func (s *Set) Labels() iter.Seq[string] { return maps.Keys(s.labels) }
