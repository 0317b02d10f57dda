// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode

import (
	"strconv"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// plain is true for the bytes that encoding/json writes unescaped in a string. It
// escapes those that HTML gives a meaning.
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
		text = text[n:]
		if len(text) == 0 {
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

// plainLength returns the number of plain bytes at the beginning of a text.
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

// appendStrings appends a message that consists of strings as a list. It returns false
// if the message has other fields.
func appendStrings(b, raw []byte) ([]byte, bool) {
	b = append(b, '[')
	s := protobuf.Scanner{Data: raw}
	for s.Next() {
		if s.Field != 1 || s.Type != protobuf.TypeBytes {
			return b, false
		}
		b = append(appendText(b, s.Value), ',')
	}
	if len(raw) == 0 {
		return append(b, ']'), true
	}
	b[len(b)-1] = ']'
	return b, !s.Bad
}

// appendTime appends a [metav1.Time], or a [metav1.MicroTime].
func appendTime(b, raw []byte, micro bool) ([]byte, bool) {
	var seconds int64
	var nanos int32
	s := protobuf.Scanner{Data: raw}
	for s.Next() {
		switch {
		case s.Field > 2:
		case s.Type != protobuf.TypeVarint:
			return b, false
		case s.Field == 1:
			seconds = int64(s.Number)
		default:
			nanos = int32(s.Number)
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
		return append(b, "null"...), !s.Bad
	}
	b = t.AppendFormat(append(b, '"'), layout)
	return append(b, '"'), !s.Bad
}

func appendIntOrString(b, raw []byte) ([]byte, bool) {
	var kind, number uint64
	var text []byte
	s := protobuf.Scanner{Data: raw}
	for s.Next() {
		switch s.Field {
		case 1:
			kind = s.Varint()
		case 2:
			number = s.Varint()
		case 3:
			text = s.Bytes()
		}
	}
	switch {
	case s.Bad || kind > uint64(intstr.String):
		return b, false
	case kind == uint64(intstr.String):
		return appendText(b, text), true
	default:
		return strconv.AppendInt(b, int64(int32(number)), 10), true
	}
}

// onlyField returns the value of a message's field 1 if that is bytes and the message
// has no other field.
func onlyField(raw []byte) ([]byte, bool) {
	s := protobuf.Scanner{Data: raw}
	ok := s.Next() && s.Field == 1 && s.Type == protobuf.TypeBytes && s.At == len(raw)
	return s.Value, ok
}

// canonical reports whether a [resource.Quantity] that is parsed from a text writes the
// same text. It returns false for numbers that are not integers of at most 18 digits,
// even if they are canonical.
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
// It returns false for some such objects, see [compactEnd].
func compact(text []byte) bool {
	return len(text) > 0 && text[0] == '{' && compactEnd(text, 0, 0) == len(text)
}

// maxNested is the depth to which compactEnd follows nested JSON values.
const maxNested = 100

// compactEnd returns the end of the JSON value that begins at an offset. It returns -1
// if there is no valid value, if the value has spaces, a number that is not an integer
// or a character that encoding/json would escape, or if it is nested too deeply.
func compactEnd(b []byte, at, depth int) int {
	if at >= len(b) || depth > maxNested {
		return -1
	}
	switch c := b[at]; c {
	case '"':
		return compactString(b, at)
	case '{', '[':
		closing := c + 2
		at++
		if at < len(b) && b[at] == closing {
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
				at += 2 // most values in managedFields are {}
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

// compactString is [compactEnd] for a string.
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

// literalEnd is [compactEnd] for integers, true, false and null.
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
	return at // a fraction is refused by the caller, which finds neither a comma nor an end
}
