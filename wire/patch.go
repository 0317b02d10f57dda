// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"cmp"
	"encoding/binary"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
)

// Patch is a change to an object that does not need decoding. The zero value changes
// nothing.
type Patch struct {
	// Version replaces the resourceVersion, unless it is 0.
	Version uint64
	// Annotation names an annotation to set to Value, whatever its value was before,
	// unless it is "".
	Annotation, Value string
}

// With returns a copy of the object with the patch applied, or the object itself if the
// patch is empty. The key stays the same.
func (o *Object) With(p Patch) *Object {
	if p == (Patch{}) {
		return o
	}
	raw, opened := o.open()
	defer opened.Free()
	version := cmp.Or(p.Version, o.version)
	if o.encoding == JSON {
		return o.with(version, p.json(raw))
	}
	return o.with(version, p.protobuf(raw))
}

// protobuf appends a second metadata to the message. Decoders merge the two: the last
// value of a field and of a map key counts.
func (p Patch) protobuf(raw []byte) []byte {
	var meta []byte
	if p.Version != 0 {
		version := strconv.FormatUint(p.Version, 10)
		meta = appendField(meta, 6, version)
	}
	if p.Annotation != "" {
		entry := appendField(appendField(nil, 1, p.Annotation), 2, p.Value)
		meta = appendField(meta, 12, string(entry))
	}
	out := make([]byte, 0, len(raw)+len(meta)+4)
	return appendField(append(out, raw...), 1, string(meta))
}

func appendField(b []byte, field byte, value string) []byte {
	b = append(b, field<<3|protobuf.TypeBytes)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

func (p Patch) json(raw []byte) []byte {
	return scan.EditMember(raw, "metadata", func(meta []byte) []byte {
		if p.Version != 0 {
			meta = scan.SetMember(meta, "resourceVersion", []byte(`"`+strconv.FormatUint(p.Version, 10)+`"`))
		}
		if p.Annotation != "" {
			meta = scan.EditOrAdd(meta, "annotations", func(all []byte) []byte {
				value, err := jsontext.AppendQuote(nil, p.Value)
				if err != nil {
					return all
				}
				return scan.SetMember(all, p.Annotation, value)
			})
		}
		return meta
	})
}

// Append appends the object's bytes.
func (o *Object) Append(b []byte) []byte {
	raw, opened := o.open()
	defer opened.Free()
	return append(b, raw...)
}

// AppendMetadata appends the object's metadata: a JSON object, or the ObjectMeta message
// with its tag, which is a PartialObjectMetadata.
func (o *Object) AppendMetadata(b []byte) []byte {
	raw, opened := o.open()
	defer opened.Free()
	if o.encoding == JSON {
		s := scan.JSON{B: raw}
		if scan.EnterMember(&s, "metadata") {
			b = append(b, s.Value()...)
		}
		return b
	}
	p := protobuf.Scanner{Data: raw}
	for from := 0; p.Next(); from = p.At {
		if p.Field == 1 {
			b = append(b, raw[from:p.At]...)
		}
	}
	return b
}

// AppendUntyped appends the bytes of a JSON object without its apiVersion and kind.
func (o *Object) AppendUntyped(b []byte) []byte {
	raw, opened := o.open()
	defer opened.Free()
	for _, name := range []string{"apiVersion", "kind"} {
		raw = scan.EditMember(raw, name, func([]byte) []byte { return nil })
	}
	return append(b, raw...)
}
