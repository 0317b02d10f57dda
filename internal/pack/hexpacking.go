// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
)

// Objects have many hexadecimal digits: UIDs, digests, container IDs. They do not repeat,
// so a dictionary does not help, but two of them fit into a byte. Digits are squeezed
// before an object is packed and expanded after it is unpacked, which takes 4 us and 1 us
// for a pod of 5 KB.
//
// A mark precedes whatever is not a copy of the original: a number n and n bytes, for 2n
// digits; digitsUUID and the 16 bytes of a UUID; or 0, for a byte of the original that
// equals the mark.
const (
	// digitsMark is the mark.
	digitsMark = 0xff
	// digitsUUID is the number after a mark that announces a UUID.
	digitsUUID = 0xff
	// fewestDigits is the minimum number of consecutive digits that are squeezed.
	fewestDigits = 16
	// mostDigits is the maximum number of digits after one mark.
	mostDigits = 2 * 254
	// uuidLength is the length of a UUID in text.
	uuidLength = 36
)

var errDigits = errors.New("digits are cut off")

// isDigit accepts only lower case, which is how Kubernetes writes these digits.
var isDigit = func() (is [256]bool) {
	for _, c := range []byte("0123456789abcdef") {
		is[c] = true
	}
	return is
}()

// appendSqueezed appends raw, with digits in half the space.
func appendSqueezed(dst, raw []byte) []byte {
	from := 0 // everything before it is in dst
	run, end := nextRun(raw, 0)
	uuid := nextUUID(raw, 0)
	for run < len(raw) || uuid < len(raw) {
		if uuid < run {
			dst = appendMarked(dst, raw[from:uuid])
			dst = append(dst, digitsMark, digitsUUID)
			at := uuid
			for _, digits := range [...]int{8, 4, 4, 4, 12} {
				dst, _ = hex.AppendDecode(dst, raw[at:at+digits])
				at += digits + 1
			}
			from = uuid + uuidLength
		} else {
			dst = appendMarked(dst, raw[from:run])
			dst = append(dst, digitsMark, byte((end-run)/2))
			dst, _ = hex.AppendDecode(dst, raw[run:end])
			from = end
		}
		if run < from {
			run, end = nextRun(raw, from)
		}
		if uuid < from {
			uuid = nextUUID(raw, from)
		}
	}
	return appendMarked(dst, raw[from:])
}

// appendMarked appends bytes that are not squeezed.
func appendMarked(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, digitsMark)
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(append(dst, raw[:i+1]...), 0)
		raw = raw[i+1:]
	}
}

// nextRun finds an even number of consecutive digits. Both results are len(raw) if there
// are none.
func nextRun(raw []byte, from int) (begin, end int) {
	// A run that is long enough includes one of these positions.
	for at := from + fewestDigits - 1; at < len(raw); at += fewestDigits {
		if !isDigit[raw[at]] {
			continue
		}
		for begin = at; begin > from && isDigit[raw[begin-1]]; begin-- {
			continue
		}
		for end = at + 1; end < len(raw) && end-begin < mostDigits && isDigit[raw[end]]; end++ {
			continue
		}
		if end-begin >= fewestDigits {
			return begin, end - (end-begin)%2
		}
		at = end
	}
	return len(raw), len(raw)
}

// nextUUID returns the index of the next UUID, len(raw) if there is none.
func nextUUID(raw []byte, from int) int {
	for at := from; ; {
		i := bytes.IndexByte(raw[at:], '-')
		if i < 0 {
			return len(raw)
		}
		at += i + 1
		if begin := at - 9; begin >= from && isUUID(raw[begin:]) {
			return begin
		}
	}
}

// isUUID reports whether raw begins with a UUID.
func isUUID(raw []byte) bool {
	if len(raw) < uuidLength || raw[8] != '-' || raw[13] != '-' || raw[18] != '-' || raw[23] != '-' {
		return false
	}
	for i, c := range raw[:uuidLength] {
		if i != 8 && i != 13 && i != 18 && i != 23 && !isDigit[c] {
			return false
		}
	}
	return true
}

// appendExpanded appends the original of squeezed, which appendSqueezed made.
func appendExpanded(dst, squeezed []byte) ([]byte, error) {
	dst = slices.Grow(dst, len(squeezed)+len(squeezed)/8)
	for {
		i := bytes.IndexByte(squeezed, digitsMark)
		if i < 0 {
			return append(dst, squeezed...), nil
		}
		dst = append(dst, squeezed[:i]...)
		if len(squeezed) < i+2 {
			return nil, errDigits
		}
		n := int(squeezed[i+1])
		squeezed = squeezed[i+2:]
		switch {
		case n == 0:
			dst = append(dst, digitsMark)
		case n == digitsUUID && len(squeezed) >= 16:
			for i, part := range [...]int{4, 2, 2, 2, 6} {
				if i > 0 {
					dst = append(dst, '-')
				}
				dst = hex.AppendEncode(dst, squeezed[:part])
				squeezed = squeezed[part:]
			}
		case n != digitsUUID && len(squeezed) >= n:
			dst = hex.AppendEncode(dst, squeezed[:n])
			squeezed = squeezed[n:]
		default:
			return nil, errDigits
		}
	}
}
