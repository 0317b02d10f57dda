// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fanout

import "iter"

// mark identifies a value in a filter. It is the value itself or, for a part of a key, a
// number that is cheaper to compute than a hash of all of it.
type mark uint64

// markOf combines the length and the ends of a string, which distinguish namespaces and
// names well enough for a filter.
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

// filter reports, in a nanosecond or two, that no reader waits on a value, so that a
// change needs a map lookup only where it will probably find a reader. It is a Bloom
// filter with one hash and at least 16 bits per value. At most one answer in sixteen is a
// false positive, which costs only the lookup.
type filter struct {
	bits []uint64
	// added is how many values were added since the bits were last cleared. Single bits
	// are never cleared.
	added int
}

func (f *filter) has(m mark) bool {
	word, bit := f.place(m)
	return f.bits[word]&bit != 0
}

func (f *filter) place(m mark) (word int, bit uint64) {
	return int(m>>6) & (len(f.bits) - 1), 1 << (m & 63)
}

// add adds a mark. When the filter is full, it is rebuilt from the values that readers
// still wait on. They fill at most half of it, so rebuilding is rare.
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
