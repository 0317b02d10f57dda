// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package protobuf

import (
	"reflect"
	"strconv"
	"strings"
)

// Message is implemented by pointers to the Go types of built-in kinds and of their
// parts.
type Message interface{ Unmarshal([]byte) error }

// IsMessage reports whether a pointer to t is a [Message].
func IsMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Message]())
}

// Tag returns the wire format and the number that the protobuf tag of a struct field
// declares. The number is 0 if the tag declares none: the field is not in the message.
func Tag(f reflect.StructField) (format string, number int) {
	format, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
	text, _, _ := strings.Cut(rest, ",")
	number, err := strconv.Atoi(text)
	if err != nil {
		return format, 0
	}
	return format, number
}
