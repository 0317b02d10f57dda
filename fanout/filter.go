// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import "iter"

// mark is what a filter knows a value by: the value itself or, for a part of a
// key, something cheaper to compute than a hash of all of it.
type mark uint64

// markOf takes the length and the ends of a string, which tell namespaces and
// names apart well enough for a filter.
func markOf(s string) mark {
	n := len(s)
	m := uint64(n)
	if n >= 8 {
		m ^= load(s) ^ load(s[n-8:])<<1
	} else {
		for i := range n {
			m = m<<8 ^ uint64(s[i])
		}
	}
	m *= 0x9e3779b97f4a7c15 // spreads every bit to the upper ones
	return mark(m ^ m>>32)
}

func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// filter tells, in a nanosecond or two, that nobody waits on a value, so that a
// change pays for a map look-up only where it is likely to find somebody. It is
// a Bloom filter of one hash with 16 bits or more per value: it is wrong about
// one value in sixteen at worst, and then only costs the look-up.
type filter struct {
	bits []uint64
	// added is how many values went in since the bits were made anew. Bits are
	// never taken back one by one.
	added int
}

func (f *filter) has(m mark) bool {
	word, bit := f.place(m)
	return f.bits[word]&bit != 0
}

func (f *filter) place(m mark) (word int, bit uint64) {
	return int(m>>6) & (len(f.bits) - 1), 1 << (m & 63)
}

// add notes a mark. When the bits are used up it starts over with the values
// that are still waited on; there are at most half as many of them as fit, so
// that starting over is rare.
func (f *filter) add(m mark, waited int, marks iter.Seq[mark]) {
	if f.added >= 4*len(f.bits) {
		words := 16
		for 2*words < waited {
			words *= 2
		}
		f.bits, f.added = make([]uint64, words), waited
		for m := range marks {
			word, bit := f.place(m)
			f.bits[word] |= bit
		}
	}
	f.added++
	word, bit := f.place(m)
	f.bits[word] |= bit
}
