// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Counted up to the line in which the renaming is not consistent any more.

package duplicates

func partly(numbers []int) (sum int) {
	for i, number := range numbers {
		if number > 10 {
			sum += number * i
			continue
		}
		if number < 0 {
			sum -= number / 2
			continue
		}
		sum = max(number, sum) % 7
	}
	return sum
}
