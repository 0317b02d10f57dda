// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// JSON walks JSON that was checked before, so it checks only what it needs to find
// its way. On malformed input it stays within the bytes, terminates and sets Bad.
type JSON struct {
	B   []byte
	At  int
	Bad bool
}

// Begin moves into the object or array that opens with c.
func (s *JSON) Begin(c byte) bool {
	s.Space()
	if s.At >= len(s.B) || s.B[s.At] != c {
		s.Bad = true
		return false
	}
	s.At++
	return true
}

// More moves to the next member or element and returns true. At the end of the object or
// array, which closes with c, it moves past the end and returns false.
func (s *JSON) More(c byte) bool {
	for ; s.At < len(s.B); s.At++ {
		switch s.B[s.At] {
		case ' ', '\n', '\r', '\t', ',':
		case c:
			s.At++
			return false
		default:
			return !s.Bad
		}
	}
	s.Bad = true
	return false
}

// Name returns the next member's name and moves to its value.
func (s *JSON) Name() ([]byte, bool) {
	if !s.More('}') {
		return nil, false
	}
	name, ok := s.Text()
	s.Space()
	if !ok || s.At >= len(s.B) || s.B[s.At] != ':' {
		s.Bad = true
		return nil, false
	}
	s.At++
	return name, true
}

func (s *JSON) Space() {
	for s.At < len(s.B) && (s.B[s.At] == ' ' || s.B[s.At] == '\n' || s.B[s.At] == '\r' || s.B[s.At] == '\t') {
		s.At++
	}
}

// Text returns the string that comes next, without quotes and escapes. For null it
// returns nil and false, which is not an error, as in encoding/json.
func (s *JSON) Text() (text []byte, ok bool) {
	quoted := s.Value()
	if len(quoted) < 2 || quoted[0] != '"' {
		if string(quoted) != "null" {
			s.Bad = true
		}
		return nil, false
	}
	text = quoted[1 : len(quoted)-1]
	for _, c := range text {
		if c == '\\' || c >= 0x80 {
			// Invalid UTF-8 is replaced, as in encoding/json.
			text, _ = jsontext.AppendUnquote(nil, quoted)
			break
		}
	}
	return text, true
}

// Integer returns the number that comes next, 0 for null.
func (s *JSON) Integer() int64 {
	number := s.Value()
	if string(number) == "null" {
		return 0
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		s.Bad = true
	}
	return n
}

// Null reports whether null comes next, and moves past it.
func (s *JSON) Null() bool {
	s.Space()
	if !bytes.HasPrefix(s.B[s.At:], []byte("null")) {
		return false
	}
	s.At += len("null")
	return true
}

// Value returns the value that comes next and moves past it.
func (s *JSON) Value() []byte {
	s.Space()
	from := s.At
	if s.At = valueEnd(s.B, from); s.At <= from {
		// Always advance, or the walk would not end.
		s.At, s.Bad = len(s.B), true
		return nil
	}
	return s.B[from:s.At]
}

// valueEnd returns the index at which the value that begins at at ends, -1 if it does not
// end.
func valueEnd(b []byte, at int) int {
	depth := 0
	for ; at < len(b); at++ {
		switch b[at] {
		case '"':
			if at = closingQuote(b, at+1); at < 0 {
				return -1
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at // the end of the object or array around the literal
			}
			if depth--; depth == 0 {
				return at + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return at
			}
		}
	}
	if depth > 0 {
		return -1
	}
	return at
}

// closingQuote returns the index of the quote that ends the string whose content begins
// at at, -1 if there is none.
func closingQuote(b []byte, at int) int {
	for from := at; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		end := from + i
		escapes := end
		for escapes > at && b[escapes-1] == '\\' {
			escapes--
		}
		if (end-escapes)%2 == 0 {
			return end
		}
		from = end + 1
	}
}
