// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/json"
	"time"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Created returns metadata.creationTimestamp, which is in seconds, and the zero time if the
// object has none. It does not decode the object.
func (o *Object) Created() time.Time {
	raw, scratch := o.open()
	defer scratch.free()
	var at time.Time
	if o.encoding == JSON {
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
		if s := protoSeconds(value); s != 0 {
			at = time.Unix(s, 0)
		}
	})
	return at
}

// valueOf calls found with the value of a member of a JSON object, if it has that member.
func valueOf(object []byte, name string, found func(value []byte)) {
	editMember(object, name, func(value []byte) []byte {
		found(value)
		return value
	})
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

// protoSeconds returns the seconds of a time, 0 for no time.
func protoSeconds(raw []byte) (seconds int64) {
	for p := (protobuf.Scanner{Data: raw}); p.Next(); {
		if p.Field == 1 {
			seconds = int64(p.Varint())
		}
	}
	return seconds
}
