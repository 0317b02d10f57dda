// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Not counted: 50 equal tokens that are on fewer than six lines.

package duplicates

var rows = [][]int{
	{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26},
	{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26},
}
