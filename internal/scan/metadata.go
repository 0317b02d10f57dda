// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"encoding/json"
	"time"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// EnterMember moves into a JSON object, to the value of one of its members. It returns
// false if the object has no such member.
func EnterMember(s *JSON, name string) bool {
	if s.Null() || !s.Begin('{') {
		return false
	}
	for n, ok := s.Name(); ok; n, ok = s.Name() {
		if string(n) == name {
			return true
		}
		s.Value()
	}
	return false
}

// metaField calls found with each value of a field of the metadata of a protobuf message.
func metaField(raw []byte, field int32, found func(value []byte)) {
	for p := (protobuf.Scanner{Data: raw}); p.Next(); {
		if p.Field != 1 {
			continue
		}
		for m := (protobuf.Scanner{Data: p.Bytes()}); m.Next(); {
			if m.Field == field {
				found(m.Bytes())
			}
		}
	}
}

// seconds returns the seconds of a time, 0 for no time.
func seconds(raw []byte) (seconds int64) {
	for p := (protobuf.Scanner{Data: raw}); p.Next(); {
		if p.Field == 1 {
			seconds = int64(p.Varint())
		}
	}
	return seconds
}

// Created returns metadata.creationTimestamp, which is in seconds, and the zero time if the
// object has none.
func Created(raw []byte, isJSON bool) time.Time {
	var at time.Time
	if isJSON {
		valueOf(raw, "metadata", func(meta []byte) {
			valueOf(meta, "creationTimestamp", func(text []byte) {
				if json.Unmarshal(text, &at) != nil {
					at = time.Time{}
				}
			})
		})
		return at
	}
	metaField(raw, 8, func(value []byte) {
		if s := seconds(value); s != 0 {
			at = time.Unix(s, 0)
		}
	})
	return at
}
