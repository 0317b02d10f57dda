// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Not counted: a literal in the middle differs.

package duplicates

func literal(numbers []int) (sum int) {
	for i, number := range numbers {
		if number > 10 {
			sum += number * i
			continue
		}
		if number < 1 {
			sum -= number / 2
			continue
		}
		sum = max(sum, number) % 7
	}
	return sum
}
