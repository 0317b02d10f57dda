// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonScan walks JSON that was checked before, so it checks only what it needs to find
// its way. On malformed input it stays within the bytes, terminates and sets bad.
type jsonScan struct {
	b   []byte
	at  int
	bad bool
}

// begin moves into the object or array that opens with c.
func (s *jsonScan) begin(c byte) bool {
	s.space()
	if s.at >= len(s.b) || s.b[s.at] != c {
		s.bad = true
		return false
	}
	s.at++
	return true
}

// more moves to the next member or element and returns true. At the end of the object or
// array, which closes with c, it moves past the end and returns false.
func (s *jsonScan) more(c byte) bool {
	for ; s.at < len(s.b); s.at++ {
		switch s.b[s.at] {
		case ' ', '\n', '\r', '\t', ',':
		case c:
			s.at++
			return false
		default:
			return !s.bad
		}
	}
	s.bad = true
	return false
}

// name returns the next member's name and moves to its value.
func (s *jsonScan) name() ([]byte, bool) {
	if !s.more('}') {
		return nil, false
	}
	name, ok := s.text()
	s.space()
	if !ok || s.at >= len(s.b) || s.b[s.at] != ':' {
		s.bad = true
		return nil, false
	}
	s.at++
	return name, true
}

func (s *jsonScan) space() {
	for s.at < len(s.b) && (s.b[s.at] == ' ' || s.b[s.at] == '\n' || s.b[s.at] == '\r' || s.b[s.at] == '\t') {
		s.at++
	}
}

// text returns the string that comes next, without quotes and escapes. For null it
// returns nil and false, which is not an error, as in encoding/json.
func (s *jsonScan) text() (text []byte, ok bool) {
	quoted := s.value()
	if len(quoted) < 2 || quoted[0] != '"' {
		if string(quoted) != "null" {
			s.bad = true
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

// integer returns the number that comes next, 0 for null.
func (s *jsonScan) integer() int64 {
	number := s.value()
	if string(number) == "null" {
		return 0
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		s.bad = true
	}
	return n
}

// null reports whether null comes next, and moves past it.
func (s *jsonScan) null() bool {
	s.space()
	if !bytes.HasPrefix(s.b[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// value returns the value that comes next and moves past it.
func (s *jsonScan) value() []byte {
	s.space()
	from := s.at
	if s.at = valueEnd(s.b, from); s.at <= from {
		// Always advance, or the walk would not end.
		s.at, s.bad = len(s.b), true
		return nil
	}
	return s.b[from:s.at]
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
