// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
)

// Fields are parts of an object's metadata that few programs read.
type Fields uint8

const (
	// ManagedFields is metadata.managedFields, which records the manager of each field
	// for server-side apply. It is often a third of an object.
	ManagedFields Fields = 1 << iota
	// LastApplied is the annotation in which kubectl apply stores a second copy of the
	// object.
	LastApplied
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Without returns the object without some fields, or the object itself if it does not
// have them. It does not decode the object.
func (o *Object) Without(fields Fields) *Object {
	if fields == 0 {
		return o
	}
	raw, opened := o.open()
	defer opened.Free()
	var rest []byte
	if o.encoding == JSON {
		rest = fields.fromJSON(raw)
	} else {
		rest = fields.fromProtobuf(raw)
	}
	if rest == nil || len(rest) == len(raw) {
		return o
	}
	return o.with(o.version, bytes.Clone(rest))
}

// fromProtobuf returns the message without the fields, nil if the message is malformed.
func (f Fields) fromProtobuf(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	p := protobuf.Scanner{Data: raw}
	for from := 0; p.Next(); from = p.At {
		if p.Field != 1 {
			out = append(out, raw[from:p.At]...)
			continue
		}
		meta := f.fromProtobufMeta(p.Bytes())
		if meta == nil {
			return nil
		}
		out = append(out, 1<<3|protobuf.TypeBytes)
		out = binary.AppendUvarint(out, uint64(len(meta)))
		out = append(out, meta...)
	}
	if p.Bad {
		return nil
	}
	return out
}

func (f Fields) fromProtobufMeta(meta []byte) []byte {
	out := make([]byte, 0, len(meta))
	p := protobuf.Scanner{Data: meta}
	for from := 0; p.Next(); from = p.At {
		drop := false
		switch p.Field {
		case 17:
			drop = f&ManagedFields != 0
		case 12:
			key, _, ok := scan.Entry(p.Bytes())
			drop = ok && f&LastApplied != 0 && string(key) == lastApplied
		}
		if !drop {
			out = append(out, meta[from:p.At]...)
		}
	}
	if p.Bad {
		return nil
	}
	return out
}

// fromJSON is fromProtobuf for JSON.
func (f Fields) fromJSON(raw []byte) []byte {
	return scan.EditMember(raw, "metadata", func(meta []byte) []byte {
		if f&ManagedFields != 0 {
			meta = scan.EditMember(meta, "managedFields", func([]byte) []byte { return nil })
		}
		if f&LastApplied != 0 && meta != nil {
			meta = scan.EditMember(meta, "annotations", func(all []byte) []byte {
				all = scan.EditMember(all, lastApplied, func([]byte) []byte { return nil })
				if string(all) == "{}" {
					return nil
				}
				return all
			})
		}
		return meta
	})
}
