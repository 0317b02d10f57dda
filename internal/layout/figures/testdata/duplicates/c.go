// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Counted: a third copy.

package duplicates

func third(numbers []int) (sum int) {
	for i, number := range numbers {
		if number > 10 {
			sum += number * i
			continue
		}
		if number < 0 {
			sum -= number / 2
			continue
		}
		sum = max(sum, number) % 7
	}
	return sum
}
