// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package layout_test

import (
	"testing"

	"github.com/watershed-project/watershed/internal/layout/figures"
)

// TestFigures_stayWithinTheirBudget fails when the code becomes harder to follow. make
// figures PLACES=1 lists the places.
func TestFigures_stayWithinTheirBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles every package")
	}
	checkout, err := figures.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := figures.Count(checkout)
	if err != nil {
		t.Fatal(err)
	}
	// Examples repeat each other, so that each can be read alone.
	for _, problem := range counts.Over(figures.Budget{AgainstPercent: 10, Duplicates: 8, AllDuplicates: 24, Long: 0, Words: 20}) {
		t.Error(problem)
	}
}
