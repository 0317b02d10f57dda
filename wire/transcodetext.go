// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plain are the bytes that mean themselves in a string of JSON, as encoding/json
// writes it: safe in HTML too.
var plain = func() (is [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return is
}()

// appendText appends a string.
func appendText(b, text []byte) []byte {
	b = append(b, '"')
	for {
		n := plainLength(text)
		b = append(b, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			return append(b, '"')
		}
		if text[0] < utf8.RuneSelf {
			b, text = appendEscape(b, text[0]), text[1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
			b = append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
		} else {
			b = append(b, text[:size]...)
		}
		text = text[size:]
	}
}

// plainLength is how many plain bytes a text begins with.
func plainLength(text []byte) int {
	for i, c := range text {
		if !plain[c] {
			return i
		}
	}
	return len(text)
}

const hexDigits = "0123456789abcdef"

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, '\\', 'b')
	case '\f':
		return append(b, '\\', 'f')
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	default:
		return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
}

// appendStrings appends the strings of a message that has nothing else.
func appendStrings(b, raw []byte) ([]byte, bool) {
	b = append(b, '[')
	s := protoScan{b: raw}
	for s.next() {
		if s.field != 1 || s.wire != wireBytes {
			return b, false
		}
		b = append(appendText(b, s.value), ',')
	}
	if len(raw) == 0 {
		return append(b, ']'), true
	}
	b[len(b)-1] = ']'
	return b, !s.bad
}

// appendTime appends a [metav1.Time], or a [metav1.MicroTime].
func appendTime(b, raw []byte, micro bool) ([]byte, bool) {
	var seconds int64
	var nanos int32
	s := protoScan{b: raw}
	for s.next() {
		switch {
		case s.field > 2:
		case s.wire != wireVarint:
			return b, false
		case s.field == 1:
			seconds = int64(s.num)
		default:
			nanos = int32(s.num)
		}
	}
	layout := time.RFC3339
	if micro {
		layout = metav1.RFC3339Micro
		nanos -= nanos % 1000
	} else {
		nanos = 0
	}
	t := time.Unix(seconds, int64(nanos)).UTC()
	if t.IsZero() {
		return append(b, "null"...), !s.bad
	}
	b = t.AppendFormat(append(b, '"'), layout)
	return append(b, '"'), !s.bad
}

func appendIntOrString(b, raw []byte) ([]byte, bool) {
	var kind, number uint64
	var text []byte
	s := protoScan{b: raw}
	for s.next() {
		switch s.field {
		case 1:
			kind = s.varint()
		case 2:
			number = s.varint()
		case 3:
			text = s.bytes()
		}
	}
	switch {
	case s.bad || kind > uint64(intstr.String):
		return b, false
	case kind == uint64(intstr.String):
		return appendText(b, text), true
	default:
		return strconv.AppendInt(b, int64(int32(number)), 10), true
	}
}

// only is the one field of a message that has no other than bytes with number 1.
func only(raw []byte) ([]byte, bool) {
	s := protoScan{b: raw}
	ok := s.next() && s.field == 1 && s.wire == wireBytes && s.at == len(raw)
	return s.value, ok
}

// canonical reports whether a quantity that is parsed from a text is written as that
// text again. It knows whole numbers that fit into 64 bits and says no to others.
func canonical(text []byte) bool {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	digits, value := 0, uint64(0)
	for digits < len(text) && digits <= 18 && '0' <= text[digits] && text[digits] <= '9' {
		value = value*10 + uint64(text[digits]-'0')
		digits++
	}
	suffix := string(text[digits:])
	switch {
	case digits == 0 || digits > 18:
		return false
	case text[0] == '0':
		return len(text) == 1 && !negative
	}
	most := 0
	switch suffix {
	case "", "n", "u", "m", "k", "M", "G", "T", "P", "E":
		return value%1000 != 0
	case "Ki":
		most = 11
	case "Mi":
		most = 8
	case "Gi":
		most = 5
	case "Ti":
		most = 2
	}
	return digits <= most && value%1024 != 0
}

// compact reports whether a text is a JSON object that encoding/json would not change.
// It says no to some that are.
func compact(text []byte) bool {
	return len(text) > 0 && text[0] == '{' && compactEnd(text, 0, 0) == len(text)
}

// maxNested is how deep JSON is looked into.
const maxNested = 100

// compactEnd is where the JSON value that begins at at ends, -1 if there is none, or
// if it has spaces, a number that is not whole, or what encoding/json would escape.
func compactEnd(b []byte, at, depth int) int {
	if at >= len(b) || depth > maxNested {
		return -1
	}
	switch c := b[at]; c {
	case '"':
		return compactString(b, at)
	case '{', '[':
		closing := c + 2
		if at++; at < len(b) && b[at] == closing {
			return at + 1
		}
		for {
			if c == '{' {
				if at = compactString(b, at); at < 0 || at >= len(b) || b[at] != ':' {
					return -1
				}
				at++
			}
			if at+2 < len(b) && b[at] == '{' && b[at+1] == '}' {
				at += 2 // as most are in what says who manages fields
			} else if at = compactEnd(b, at, depth+1); at < 0 || at >= len(b) {
				return -1
			}
			at++
			switch b[at-1] {
			case closing:
				return at
			case ',':
			default:
				return -1
			}
		}
	default:
		return literalEnd(b, at)
	}
}

// compactString is compactEnd for a string.
func compactString(b []byte, at int) int {
	if at >= len(b) || b[at] != '"' {
		return -1
	}
	for at++; ; at += 2 {
		for at < len(b) && plain[b[at]] {
			at++
		}
		switch {
		case at >= len(b):
			return -1
		case b[at] == '"':
			return at + 1
		case b[at] != '\\' || at+1 >= len(b):
			return -1
		}
		switch b[at+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			return -1
		}
	}
}

// literalEnd is compactEnd for whole numbers, true, false and null.
func literalEnd(b []byte, at int) int {
	for _, literal := range []string{"true", "false", "null"} {
		if len(b)-at >= len(literal) && string(b[at:at+len(literal)]) == literal {
			return at + len(literal)
		}
	}
	if b[at] == '-' {
		at++
	}
	from := at
	for at < len(b) && '0' <= b[at] && b[at] <= '9' {
		at++
	}
	if at == from || b[from] == '0' && at-from > 1 {
		return -1
	}
	return at // what makes it a fraction is no comma and no end
}
