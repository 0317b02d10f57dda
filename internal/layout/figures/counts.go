// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import "slices"

// Counts has every figure of a checkout.
type Counts struct {
	// Exported is the number of exported identifiers by package.
	Exported map[string]int
	// Flow is how the files of each package refer to each other.
	Flow []PackageFlow
	// Duplicates are the duplicated blocks in the library and the program, and
	// AllDuplicates those in all code outside tests.
	Duplicates, AllDuplicates []Block
	// Long are the functions of more than 60 lines outside tests.
	Long []Function
	// Links are the modules that a user of each of [LinkedPackages] links. A
	// package that the checkout does not have is left out.
	Links map[string][]string
	// Words are the uses of [Words] in comments and documents.
	Words []Use
}

// LinkedPackages are the packages whose users' modules are counted, by the name
// in the table: the folders in which each has been, the current one first.
var LinkedPackages = map[string][]string{
	"root":    {"."},
	"compat":  {"compat"},
	"replica": {"replica", "internal/replica"},
}

// Count counts everything in a checkout.
func Count(c *Checkout) (*Counts, error) {
	flow, err := Flow(c)
	if err != nil {
		return nil, err
	}
	counts := &Counts{
		Exported:      Exported(c),
		Flow:          flow,
		Duplicates:    Duplicates(c, Product),
		AllDuplicates: Duplicates(c, nil),
		Long:          LongFunctions(c),
		Links:         map[string][]string{},
		Words:         WordUses(c),
	}
	for name, folders := range LinkedPackages {
		i := slices.IndexFunc(folders, c.hasPackage)
		if i < 0 {
			continue
		}
		if counts.Links[name], err = Links(c, folders[i]); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// hasPackage reports whether a folder of the checkout has Go files outside
// tests.
func (c *Checkout) hasPackage(folder string) bool {
	return slices.ContainsFunc(c.Sources, func(s Source) bool { return s.Package() == folder && !s.Test() })
}
