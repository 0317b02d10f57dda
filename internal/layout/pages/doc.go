// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package pages inserts measured values, versions and counts into the pages of a checkout, so that nobody has to
// correct copies of them by hand.
//
// # Results
//
// A benchmark writes its values, with date, commit and machine, to docs/performance/results/NAME.json.
//
// # Markers
//
// A page names a value in a comment directly behind it:
//
//	580<!-- = heap.packed.bytes -->
//	0.39 s<!-- = list.json.ours s -->
//	6.5 times<!-- = list.json.kube/list.json.ours times .1 -->
//	5.5 GB<!-- = fleet.1000.settled*fleet.1000.objects GB .1 -->
//
// The first word is a value: the name of its file, a dot, and its name in the file. A slash divides two values, an
// asterisk multiplies them. The unit to write may follow, and a dot with the number of decimals. A
// marker without a unit writes only the number, in the unit of the file, and one with a unit in parentheses only the
// number in that unit. Without a number of decimals there are three significant digits, and no decimals from 1,000
// on. The writer of a page writes a question mark before a new marker. The comment follows the value because a line
// that begins with a comment is HTML, in which Markdown means nothing.
//
// # Marks
//
// A page with values has a block:
//
//	<!-- measured:begin -->
//	<!-- measured:end -->
//
// [Results.Insert] writes into it when and at which commit the values were measured, and whether the measured
// packages have changed since. It is one sentence for the page, because a mark at each value would make a table
// unreadable.
//
// # Facts
//
// A version or a count that a file of the checkout fixes has a marker with the name of the fact:
//
//	1.26<!-- @ go -->
//	v0.37.1<!-- @ client-go -->
//
// facts.go says from which file each fact comes. What a measurement was made with is not a fact: it does not
// change with the checkout.
package pages
