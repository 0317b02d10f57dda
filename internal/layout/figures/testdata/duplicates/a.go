// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package duplicates has copies of one function. Each says whether it counts.
package duplicates

func original(numbers []int) (sum int) {
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
