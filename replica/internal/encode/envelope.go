// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"encoding/binary"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
)

// magic begins every Kubernetes document in protobuf.
const magic = "k8s\x00"

// Envelope appends a message with the envelope that names its kind.
func Envelope(b []byte, apiVersion, kind string, raw []byte) []byte {
	b = EnvelopeHead(b, apiVersion, kind, len(raw))
	return EnvelopeTail(append(b, raw...))
}

// EnvelopeHead appends the part of an envelope before a message of n bytes.
func EnvelopeHead(b []byte, apiVersion, kind string, n int) []byte {
	b = append(b, magic...)
	typeMeta := AppendField(AppendField(nil, 1, apiVersion), 2, kind)
	b = AppendField(b, 1, string(typeMeta))
	b = append(b, 2<<3|2)
	return binary.AppendUvarint(b, uint64(n))
}

// EnvelopeTail appends the part of an envelope behind the message: an empty encoding and
// an empty media type.
func EnvelopeTail(b []byte) []byte { return append(b, 3<<3|2, 0, 4<<3|2, 0) }

// AppendField appends a field of a message that is a string.
func AppendField(b []byte, field byte, value string) []byte {
	b = append(b, field<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// FieldLen returns how many bytes a field of n bytes takes, with its tag and length.
func FieldLen(n int) int { return 1 + uvarintLen(n) + n }

// prefixed turns the bytes from at on into a field, by inserting its tag and length.
func prefixed(b []byte, at int, field byte) []byte {
	n := len(b) - at
	head := 1 + uvarintLen(n)
	b = append(b, make([]byte, head)...)
	copy(b[at+head:], b[at:at+n])
	b[at] = field<<3 | 2
	binary.PutUvarint(b[at+1:], uint64(n))
	return b
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}

// EventLength is how many bytes the length in front of an event in protobuf has.
const EventLength = 4

// ProtobufEvent appends an event of a watch in protobuf: a length, and a WatchEvent that
// contains the message in its envelope.
func ProtobufEvent(b []byte, t stream.EventType, kind schema.GroupVersionKind, raw []byte) []byte {
	apiVersion, name := kind.ToAPIVersionAndKind()
	enveloped := Envelope(nil, apiVersion, name, raw)
	var event []byte
	event = AppendField(event, 1, t.String())
	event = append(event, 2<<3|2)
	event = binary.AppendUvarint(event, uint64(FieldLen(len(enveloped))))
	event = append(event, 1<<3|2)
	event = binary.AppendUvarint(event, uint64(len(enveloped)))
	event = append(event, enveloped...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(event)))
	return append(b, event...)
}

// JSONEvent returns an event of a watch in JSON, which contains an object in JSON.
func JSONEvent(t stream.EventType, object []byte) []byte {
	return append(append([]byte(`{"type":"`+t.String()+`","object":`), object...), "}\n"...)
}
