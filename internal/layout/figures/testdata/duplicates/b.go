// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Counted: a copy with other names.

package duplicates

func renamed(prices []int) (total int) {
	for at, price := range prices {
		if price > 10 {
			total += price * at
			continue
		}
		if price < 0 {
			total -= price / 2
			continue
		}
		total = max(total, price) % 7
	}
	return total
}
