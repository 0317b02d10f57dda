// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
)

// reasonLabel returns the label of a reason. Labels have no spaces.
func reasonLabel(r reflector.Reason) string { return strings.ReplaceAll(r.String(), " ", "_") }

// mergeHandlers returns the handlers of two informers, sorted by name.
func mergeHandlers(a, b []watershed.HandlerStatus) []watershed.HandlerStatus {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b watershed.HandlerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
