// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strconv"
	"time"
)

// Encoded values begin with a tag. Texts that are UUIDs, addresses and times are encoded as what
// they mean, if that is shorter and gives the same text.
const (
	tagNull byte = iota
	tagText
	tagInteger
	tagFloat
	tagTrue
	tagFalse
	tagMoment
	tagUUID
	tagIPv4
	tagIPv6
	tagList
	tagUnknown
)

// encode appends a value.
func (v *scalar) encode(b []byte) []byte {
	switch v.tag {
	case tagText:
		return appendText(b, v.text)
	case tagInteger, tagMoment:
		return binary.AppendVarint(append(b, v.tag), v.number)
	case tagFloat:
		b = binary.AppendUvarint(append(b, tagFloat), uint64(len(v.text)))
		return append(b, v.text...)
	}
	return append(b, v.tag)
}

func appendText(b, text []byte) []byte {
	switch n := len(text); {
	case n == 36 && text[8] == '-':
		if id, ok := parseUUID(text); ok {
			return append(append(b, tagUUID), id[:]...)
		}
	case n == len("2006-01-02T15:04:05Z") && text[n-1] == 'Z' && text[4] == '-':
		if t, err := time.Parse(time.RFC3339, string(text)); err == nil && formatTime(t.Unix()) == string(text) {
			return binary.AppendVarint(append(b, tagMoment), t.Unix())
		}
	case n >= len("0.0.0.0") && n <= len("255.255.255.255") && text[0] >= '0' && text[0] <= '9':
		if ip, ok := parseIPv4(text); ok {
			return append(append(b, tagIPv4), ip[:]...)
		}
	}
	if n := len(text); n > 1 && n <= 39 && bytes.Count(text, colon) > 1 {
		ip, err := netip.ParseAddr(string(text))
		if err == nil && ip.Is6() && !ip.Is4In6() && ip.Zone() == "" && ip.String() == string(text) {
			a := ip.As16()
			return append(append(b, tagIPv6), a[:]...)
		}
	}
	b = binary.AppendUvarint(append(b, tagText), uint64(len(text)))
	return append(b, text...)
}

var colon = []byte(":")

// parseIPv4 returns the bytes of an address as [netip.Addr.String] writes it.
func parseIPv4(text []byte) (ip [4]byte, ok bool) {
	at, digits, n := 0, 0, 0
	for _, c := range text {
		switch {
		case c == '.' && digits > 0 && at < 3:
			ip[at] = byte(n)
			at, digits, n = at+1, 0, 0
		case c >= '0' && c <= '9' && (digits == 0 || n > 0):
			if n, digits = 10*n+int(c-'0'), digits+1; n > 255 {
				return ip, false
			}
		default:
			return ip, false
		}
	}
	ip[at] = byte(n)
	return ip, at == 3 && digits > 0
}

// formatTime returns a time as JSON has it.
func formatTime(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// parseUUID returns the bytes of a UUID in lower case.
func parseUUID(text []byte) (id [16]byte, ok bool) {
	var digits [32]byte
	n := 0
	for i, c := range text {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return id, false
			}
			continue
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, false
		}
		digits[n] = c
		n++
	}
	_, err := hex.Decode(id[:], digits[:])
	return id, err == nil
}

// formatUUID returns the text of a UUID.
func formatUUID(id string) string {
	d := hex.EncodeToString([]byte(id))
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// next returns the length of the first value of b, which is well-formed.
func next[T string | []byte](b T) int {
	switch b[0] {
	case tagText, tagFloat:
		n, l := uvarint(b[1:])
		return 1 + l + int(n)
	case tagInteger, tagMoment:
		_, l := uvarint(b[1:])
		return 1 + l
	case tagUUID, tagIPv6:
		return 1 + 16
	case tagIPv4:
		return 1 + 4
	case tagList:
		at := 2
		for range b[1] {
			at += next(b[at:])
		}
		return at
	}
	return 1
}

// uvarint is [binary.Uvarint] for strings too. The number is well-formed.
func uvarint[T string | []byte](b T) (v uint64, n int) {
	for shift := 0; ; shift += 7 {
		c := b[n]
		n++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, n
		}
	}
}

// decode returns an encoded value as an unstructured object has it: nil, a string, an int64, a
// float64, a bool, or a list of these. It returns false for an unknown one.
func decode(b string) (value any, known bool) {
	switch b[0] {
	case tagUnknown:
		return nil, false
	case tagText:
		n, l := uvarint(b[1:])
		return b[1+l:][:n], true
	case tagInteger:
		return varint(b[1:]), true
	case tagFloat:
		n, l := uvarint(b[1:])
		f, err := strconv.ParseFloat(b[1+l:][:n], 64)
		return f, err == nil
	case tagTrue:
		return true, true
	case tagFalse:
		return false, true
	case tagMoment:
		return formatTime(varint(b[1:])), true
	case tagUUID:
		return formatUUID(b[1:17]), true
	case tagIPv4:
		return netip.AddrFrom4([4]byte([]byte(b[1:5]))).String(), true
	case tagIPv6:
		return netip.AddrFrom16([16]byte([]byte(b[1:17]))).String(), true
	case tagList:
		all := make([]any, b[1])
		b = b[2:]
		for i := range all {
			all[i], _ = decode(b)
			b = b[next(b):]
		}
		return all, true
	}
	return nil, true
}

// varint is [binary.Varint] for a string.
func varint(b string) int64 {
	u, _ := uvarint(b)
	return int64(u>>1) ^ -int64(u&1)
}
