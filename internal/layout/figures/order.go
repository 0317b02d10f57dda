// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package figures

import (
	"math/rand/v2"
	"slices"
)

// orderAttempts is how many random orders are improved. The best order of the
// largest package was found within a tenth of them.
const orderAttempts = 300

// direction is a pair of files of which the first refers to the second.
type direction struct{ from, to string }

// order returns the files such that few pairs point back to an earlier one, and
// among orders with equally many pairs one with few uses. Finding the best order
// is NP-hard (minimum feedback arc set). This is local search from random
// orders: each file in turn moves to its best position until none can move. The
// random numbers are the same in every run.
func order(files []string, uses map[direction]int) []string {
	names := slices.Sorted(slices.Values(files))
	cost := costs(names, uses)
	random := rand.New(rand.NewPCG(1, 2))
	var best []int
	least := -1
	for range orderAttempts {
		attempt := improve(random.Perm(len(names)), cost)
		if back := backward(attempt, cost); least < 0 || back < least {
			best, least = attempt, back
		}
		if least == 0 {
			break
		}
	}
	ordered := make([]string, len(best))
	for i, file := range best {
		ordered[i] = names[file]
	}
	return ordered
}

// costs returns what it costs if file i refers back to file j: a pair outweighs
// any number of uses.
func costs(names []string, uses map[direction]int) [][]int {
	total := 1
	for _, n := range uses {
		total += n
	}
	cost := make([][]int, len(names))
	for i, from := range names {
		cost[i] = make([]int, len(names))
		for j, to := range names {
			if n := uses[direction{from, to}]; n > 0 {
				cost[i][j] = total + n
			}
		}
	}
	return cost
}

// improve moves files to better positions until there are none.
func improve(order []int, cost [][]int) []int {
	for moved := true; moved; {
		moved = false
		for file := range cost {
			at := slices.Index(order, file)
			order = slices.Delete(order, at, at+1)
			to, better := bestPosition(file, at, order, cost)
			order = slices.Insert(order, to, file)
			moved = moved || better
		}
	}
	return order
}

// bestPosition returns where a file costs least among the others, and whether
// that is less than at its present position.
func bestPosition(file, at int, others []int, cost [][]int) (position int, better bool) {
	// At the front, the references of all others to the file point back.
	c := 0
	for _, other := range others {
		c += cost[other][file]
	}
	least, present := c, c
	for i, other := range others {
		c += cost[file][other] - cost[other][file]
		if c < least {
			least, position = c, i+1
		}
		if i+1 == at {
			present = c
		}
	}
	if least == present {
		return at, false
	}
	return position, true
}

// backward returns the cost of all references that point back.
func backward(order []int, cost [][]int) int {
	sum := 0
	for i, earlier := range order {
		for _, later := range order[i+1:] {
			sum += cost[later][earlier]
		}
	}
	return sum
}
