// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
)

// Two states of an object differ in a few fields, and so do two pods of one ReplicaSet. A
// difference describes an object by another one, the base: a sequence of steps, each of
// which copies bytes of the base and inserts bytes that the base does not have.
//
// A step is the number of bytes to copy, and then twice the number of bytes to insert,
// plus 1 if the number of bytes of the base to skip is different and follows. The bytes
// to insert are last. The last step may end after the copy. All numbers are varints.
const (
	// anchor is the number of equal bytes that end an insertion.
	anchor = 8
	// maxGap is the maximum number of bytes that one step searches for the next anchor.
	maxGap = 512
	// lookahead is how much farther ahead the base is searched than the object, in bytes.
	lookahead = 96
)

var errDifference = errors.New("difference is malformed")

// appendDifference appends the difference between base and raw. It returns false if that
// takes more than most bytes, or if the two have too little in common.
func appendDifference(dst, base, raw []byte, most int) ([]byte, bool) {
	most += len(dst)
	for {
		n := commonPrefix(base, raw)
		base, raw = base[n:], raw[n:]
		dst = binary.AppendUvarint(dst, uint64(n))
		if len(raw) == 0 {
			return dst, len(dst) <= most
		}
		skip, insert, ok := nextAnchor(base, raw)
		if !ok || len(dst)+insert > most {
			return dst, false
		}
		if skip == insert {
			dst = binary.AppendUvarint(dst, uint64(insert)<<1)
		} else {
			dst = binary.AppendUvarint(dst, uint64(insert)<<1|1)
			dst = binary.AppendUvarint(dst, uint64(skip))
		}
		dst = append(dst, raw[:insert]...)
		base, raw = base[skip:], raw[insert:]
		if len(raw) == 0 {
			return dst, len(dst) <= most
		}
	}
}

// commonPrefix returns the number of bytes at the beginning that a and b have in common.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		if d := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for ; i < n && a[i] == b[i]; i++ {
		continue
	}
	return i
}

// nextAnchor returns how many bytes of base and of raw come before the next bytes that
// both have. It returns false if these are more than maxGap.
func nextAnchor(base, raw []byte) (skip, insert int, ok bool) {
	// Usually a value is replaced by another of the same length.
	for at := 0; at < min(len(base), len(raw), lookahead)-anchor; at++ {
		if binary.LittleEndian.Uint64(base[at:]) == binary.LittleEndian.Uint64(raw[at:]) {
			return at, at, true
		}
	}
	for at := 0; at+anchor <= min(len(raw), maxGap); at += anchor / 2 {
		found := bytes.Index(base[:min(len(base), at+lookahead)], raw[at:at+anchor])
		if found < 0 {
			continue
		}
		for at > 0 && found > 0 && base[found-1] == raw[at-1] {
			at--
			found--
		}
		return found, at, true
	}
	return min(len(base), len(raw)), len(raw), len(raw) <= maxGap
}

// appendPatched appends the object that a difference from base describes. It returns an
// error rather than more than most bytes.
func appendPatched(dst, base, difference []byte, most int) ([]byte, error) {
	most += len(dst)
	for len(difference) > 0 {
		n, l := binary.Uvarint(difference)
		if l <= 0 || n > uint64(len(base)) || len(dst)+int(n) > most {
			return nil, errDifference
		}
		dst, base, difference = append(dst, base[:n]...), base[n:], difference[l:]
		if len(difference) == 0 {
			break
		}
		insert, l := binary.Uvarint(difference)
		if l <= 0 {
			return nil, errDifference
		}
		difference = difference[l:]
		skip := insert >> 1
		if insert&1 != 0 {
			if skip, l = binary.Uvarint(difference); l <= 0 {
				return nil, errDifference
			}
			difference = difference[l:]
		}
		if insert >>= 1; insert > uint64(len(difference)) || skip > uint64(len(base)) || len(dst)+int(insert) > most {
			return nil, errDifference
		}
		dst, base, difference = append(dst, difference[:insert]...), base[skip:], difference[insert:]
	}
	return dst, nil
}
