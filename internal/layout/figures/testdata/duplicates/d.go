// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Not counted: the renaming is not consistent, number is also i.

package duplicates

func inconsistent(numbers []int) (sum int) {
	for i, number := range numbers {
		if number > 10 {
			sum += number * i
			continue
		}
		if number < 0 {
			sum -= i / 2
			continue
		}
		sum = max(sum, number) % 7
	}
	return sum
}
