// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/scan"
)

// NewObject files the bytes of one object: a complete JSON object, or a bare protobuf
// message. It keeps raw, which must not be modified afterwards. JSON without apiVersion
// or kind is copied, with the missing ones added. If kind is nil, JSON must contain both.
//
// If the bytes cannot be filed, the error is an [*ObjectError].
func NewObject(raw []byte, e Encoding, kind *Kind) (*Object, error) {
	return newObject(raw, e, kind, false)
}

// newObject is NewObject. If checked is true, JSON is known to be well-formed.
func newObject(raw []byte, e Encoding, kind *Kind, checked bool) (*Object, error) {
	f := Builder{Kind: kind}
	switch {
	case len(raw) > buffer.MaxObject:
		return nil, f.Failed(&scan.Header{}, buffer.ErrTooLarge)
	case e == JSON && !checked && !jsontext.Value(raw).IsValid(scan.Options...):
		return nil, f.Failed(&scan.Header{}, scan.ErrJSON)
	case e == JSON:
		return f.json(&scan.Header{}, bytes.TrimSpace(raw), nil, true)
	case e == Protobuf && kind == nil:
		return nil, f.Failed(&scan.Header{}, scan.ErrUntyped)
	case e == Protobuf:
		return f.protobuf(&scan.Header{}, raw, kind)
	default:
		return nil, f.Failed(&scan.Header{}, errors.New(e.String()))
	}
}

// Builder makes the objects of one response. It is for the packages of this module that
// read responses: programs use [NewObject] or [Encode]. The zero value is ready. It
// remembers what consecutive objects have in common: the kind, and the JSON text for it.
type Builder struct {
	// Kind is the kind of all objects. If it is nil, an object has the type in its bytes.
	Kind *Kind

	last             *Kind
	apiVersion, kind string

	headOf           *Kind
	headKind, headGV []byte
}

// KindOf returns the kind of an object: the builder's, or else one made from the type in
// the object's bytes. Consecutive objects of the same type share it.
func (f *Builder) KindOf(apiVersion, kind []byte) (*Kind, error) {
	if f.Kind != nil {
		return f.Kind, nil
	}
	if f.last != nil && string(apiVersion) == f.apiVersion && string(kind) == f.kind {
		return f.last, nil
	}
	if len(apiVersion) == 0 || len(kind) == 0 {
		return nil, scan.ErrUntyped
	}
	if len(apiVersion) > maxKind || len(kind) > maxKind {
		return nil, errLongKind
	}
	gv, err := schema.ParseGroupVersion(string(apiVersion))
	if err != nil {
		return nil, err
	}
	if gv.Version == "" {
		return nil, fmt.Errorf("apiVersion %q has no version", apiVersion)
	}
	f.apiVersion, f.kind = string(apiVersion), string(kind)
	f.last = &Kind{GroupVersionKind: gv.WithKind(f.kind)}
	return f.last, nil
}

// JSON files a copy of an object that is well-formed JSON without space around it, and
// scans it into id. ofList is the kind of an object that does not contain its own.
func (f *Builder) JSON(id *scan.Header, item []byte, ofList *Kind) (*Object, error) {
	return f.json(id, item, ofList, false)
}

// json is JSON, but does not copy the bytes of an object with a type if they are owned.
func (f *Builder) json(id *scan.Header, item []byte, ofList *Kind, owned bool) (*Object, error) {
	if err := id.ScanJSON(item); err != nil {
		return nil, f.Failed(id, err)
	}
	kind := ofList
	if kind == nil || id.Found&scan.FoundType != 0 {
		var err error
		if kind, err = f.KindOf(id.APIVersion, id.Kind); err != nil {
			return nil, f.Failed(id, err)
		}
	}
	switch {
	case id.Found&scan.FoundType != scan.FoundType:
		item = f.withType(item, kind, id.Found)
	case !owned:
		item = buffer.Copy(item)
	default:
		return f.object(item, JSON, kind, id)
	}
	return leased(f.object(item, JSON, kind, id))
}

// leased allows to recycle the bytes of a new object. Nothing else may refer to them.
func leased(o *Object, err error) (*Object, error) {
	if err == nil {
		o.lease.Begin()
	}
	return o, err
}

// Protobuf files a bare message, and scans it into id. It keeps the message, which nothing
// else may refer to.
func (f *Builder) Protobuf(id *scan.Header, item []byte, kind *Kind) (*Object, error) {
	return leased(f.protobuf(id, item, kind))
}

// protobuf is Protobuf for a message that others may refer to.
func (f *Builder) protobuf(id *scan.Header, item []byte, kind *Kind) (*Object, error) {
	if err := id.ScanProtobuf(item); err != nil {
		id.Kind = []byte(kind.Kind)
		return nil, f.Failed(id, err)
	}
	return f.object(item, Protobuf, kind, id)
}

func (f *Builder) object(raw []byte, e Encoding, kind *Kind, id *scan.Header) (*Object, error) {
	o := &Object{kind: kind, encoding: e, version: scan.ParseVersion(id.Version)}
	o.body.Store(&pack.Body{Data: raw})
	switch {
	case len(id.Name) == 0:
		return nil, f.Failed(id, scan.ErrNoName)
	case bytes.IndexByte(id.Name, '/') >= 0 || bytes.IndexByte(id.Namespace, '/') >= 0:
		return nil, f.Failed(id, errSlash)
	case len(id.Namespace)+len(id.Name) >= scan.MaxKey:
		return nil, f.Failed(id, scan.ErrLongName)
	case scan.TooManyLabels(raw, e == JSON):
		return nil, f.Failed(id, errLabels)
	case len(id.Namespace) == 0:
		o.key = string(id.Name)
	default:
		o.key = string(id.Namespace) + "/" + string(id.Name)
		o.split = uint16(len(id.Namespace)) + 1
	}
	return o, nil
}

// Failed returns the error for an object that cannot be filed. id has what is known of it.
func (f *Builder) Failed(id *scan.Header, err error) *ObjectError {
	e := &ObjectError{Kind: string(id.Kind[:min(len(id.Kind), maxKind)]), Err: scan.Bounded(err)}
	if f.Kind != nil {
		e.Kind = f.Kind.Kind
	}
	if len(id.Namespace)+len(id.Name) >= scan.MaxKey {
		return e // no object has such a key
	}
	if e.Key = string(id.Name); e.Key != "" && len(id.Namespace) > 0 {
		e.Key = string(id.Namespace) + "/" + e.Key
	}
	return e
}

// withType copies the item and adds its missing kind and apiVersion, in the order and the
// form that the API server uses in watch events. That way an object has the same bytes
// however it arrived.
func (f *Builder) withType(item []byte, kind *Kind, found uint16) []byte {
	if f.headOf != kind {
		quotedKind, _ := jsontext.AppendQuote(nil, kind.Kind)
		quotedGV, _ := jsontext.AppendQuote(nil, kind.GroupVersion().String())
		f.headOf = kind
		f.headKind = fmt.Appendf(nil, "\"kind\":%s,", quotedKind)
		f.headGV = fmt.Appendf(nil, "\"apiVersion\":%s,", quotedGV)
	}
	var headKind, headGV []byte
	if found&scan.FoundKind == 0 {
		headKind = f.headKind
	}
	if found&scan.FoundAPIVersion == 0 {
		headGV = f.headGV
	}
	typed := buffer.New(len(item) + len(headKind) + len(headGV))[:0]
	typed = append(typed, '{')
	typed = append(typed, headKind...)
	typed = append(typed, headGV...)
	return append(typed, item[1:]...)
}
