// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"fmt"
	"slices"
)

// Budget limits figures. A limit is the largest number that is allowed.
type Budget struct {
	// AgainstPercent limits the share of references against the flow in each
	// package: it must be below this number.
	AgainstPercent float64
	// Against has the packages that AgainstPercent does not apply to, with the
	// largest number of references against the flow that each may have.
	Against map[string]int
	// Duplicates limits the duplicated blocks of the library and the program,
	// AllDuplicates those of all code outside tests.
	Duplicates, AllDuplicates int
	// Long limits the functions of more than 60 lines.
	Long int
	// Words limits the uses of [Words].
	Words int
}

// Over returns a sentence for each limit that the counts exceed, with the places
// to look at.
func (c *Counts) Over(b Budget) []string {
	over := OverFlow(c.Flow, b)
	over = append(over, exceeds("duplicated blocks in the library and the program", c.Duplicates, b.Duplicates)...)
	over = append(over, exceeds("duplicated blocks outside tests", c.AllDuplicates, b.AllDuplicates)...)
	over = append(over, exceeds("functions of more than 60 lines", c.Long, b.Long)...)
	return append(over, exceeds("words that the style guide replaces", c.Words, b.Words)...)
}

// OverFlow returns a sentence for each package with more references against the
// flow than the budget allows, and for each exception that is not needed.
func OverFlow(flows []PackageFlow, b Budget) []string {
	var over []string
	found := map[string]bool{}
	for _, f := range flows {
		found[f.Package] = true
		limit, excepted := b.Against[f.Package]
		switch {
		case excepted && f.Against() > limit:
			over = append(over, fmt.Sprintf("%s: %d of %d references between files point against the flow, the budget is %d%s",
				f.Package, f.Against(), len(f.References), limit, places(f.against())))
		case excepted && f.Percent() < b.AgainstPercent:
			over = append(over, fmt.Sprintf("%s: the exception in the budget is not needed: %d of %d references between files point against the flow",
				f.Package, f.Against(), len(f.References)))
		case !excepted && f.Percent() >= b.AgainstPercent && f.Against() > 0:
			over = append(over, fmt.Sprintf("%s: %d of %d references between files point against the flow, which is not below %v %%%s",
				f.Package, f.Against(), len(f.References), b.AgainstPercent, places(f.against())))
		}
	}
	for pkg := range b.Against {
		if !found[pkg] {
			over = append(over, fmt.Sprintf("%s: the budget has an exception for a package that does not exist", pkg))
		}
	}
	slices.Sort(over)
	return over
}

// exceeds returns a sentence if there are more items than the limit.
func exceeds[T fmt.Stringer](what string, items []T, limit int) []string {
	if len(items) <= limit {
		return nil
	}
	return []string{fmt.Sprintf("%d %s, the budget is %d%s", len(items), what, limit, places(items))}
}

// maxPlaces limits how many places a sentence lists.
const maxPlaces = 40

func places[T fmt.Stringer](items []T) string {
	text := ""
	for i, item := range items {
		if i == maxPlaces {
			return text + fmt.Sprintf("\n\t… and %d more", len(items)-maxPlaces)
		}
		text += "\n\t" + item.String()
	}
	return text
}
