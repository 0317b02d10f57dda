// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/wire/internal/scan"
	"github.com/watershed-project/watershed/wire/internal/stream"
)

// NewObject files the bytes of one object: a complete JSON object, or a bare protobuf
// message. It keeps raw, which must not be modified afterwards. JSON without apiVersion
// or kind is copied, with the missing ones added. If kind is nil, JSON must contain both.
//
// If the bytes cannot be filed, the error is an [*ObjectError].
func NewObject(raw []byte, e Encoding, kind *Kind) (*Object, error) {
	f := builder{kinds: kinds{fixed: kind}}
	switch {
	case len(raw) > buffer.MaxObject:
		return nil, f.failed(&scan.Header{}, stream.ErrTooLarge)
	case e == JSON && !jsontext.Value(raw).IsValid(scan.Options...):
		return nil, f.failed(&scan.Header{}, scan.ErrJSON)
	case e == JSON:
		return f.json(&scan.Header{}, bytes.TrimSpace(raw), nil, true)
	case e == Protobuf && kind == nil:
		return nil, f.failed(&scan.Header{}, errUntyped)
	case e == Protobuf:
		return f.protobuf(&scan.Header{}, raw, kind)
	default:
		return nil, f.failed(&scan.Header{}, errors.New(e.String()))
	}
}

// ReadObject reads the response to a GET: a JSON object, or protobuf with its magic
// number and envelope. If kind is not nil, it overrides the type in the bytes.
//
// If the bytes were read but cannot be filed, the error is an [*ObjectError].
func ReadObject(r io.Reader, e Encoding, kind *Kind) (*Object, error) {
	body, err := io.ReadAll(io.LimitReader(r, buffer.MaxObject+1))
	if err == nil && len(body) > buffer.MaxObject {
		err = stream.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("wire: read an object: %w", err)
	}
	if e != Protobuf {
		return NewObject(bytes.Clone(body), e, kind)
	}
	f := builder{kinds: kinds{fixed: kind}}
	env, err := scan.OpenEnvelope(body)
	if err != nil {
		return nil, f.failed(&scan.Header{}, err)
	}
	if kind, err = f.of(env.APIVersion, env.Kind); err != nil {
		return nil, f.failed(&scan.Header{}, err)
	}
	return f.protobuf(&scan.Header{}, bytes.Clone(env.Raw), kind)
}

// builder makes objects. It remembers what consecutive objects have in common: the kind,
// and the JSON text for it.
type builder struct {
	kinds

	headOf           *Kind
	headKind, headGV []byte
}

// json files an object that is well-formed JSON without space around it. ofList is the
// kind of an object that does not contain its own. The bytes are copied unless owned.
func (f *builder) json(id *scan.Header, item []byte, ofList *Kind, owned bool) (*Object, error) {
	if err := id.ScanJSON(item); err != nil {
		return nil, f.failed(id, err)
	}
	kind := ofList
	if kind == nil || id.Found&scan.FoundType != 0 {
		var err error
		if kind, err = f.of(id.APIVersion, id.Kind); err != nil {
			return nil, f.failed(id, err)
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

// protobuf files a bare message, which it keeps.
func (f *builder) protobuf(id *scan.Header, item []byte, kind *Kind) (*Object, error) {
	if err := id.ScanProtobuf(item); err != nil {
		id.Kind = []byte(kind.Kind)
		return nil, f.failed(id, err)
	}
	return f.object(item, Protobuf, kind, id)
}

func (f *builder) object(raw []byte, e Encoding, kind *Kind, id *scan.Header) (*Object, error) {
	o := &Object{kind: kind, encoding: e, version: scan.ParseVersion(id.Version)}
	o.body.Store(&pack.Body{Data: raw})
	switch {
	case len(id.Name) == 0:
		return nil, f.failed(id, errNoName)
	case bytes.IndexByte(id.Name, '/') >= 0 || bytes.IndexByte(id.Namespace, '/') >= 0:
		return nil, f.failed(id, errSlash)
	case len(id.Namespace)+len(id.Name) >= maxKey:
		return nil, f.failed(id, errLongName)
	case scan.TooManyLabels(raw, e == JSON):
		return nil, f.failed(id, errLabels)
	case len(id.Namespace) == 0:
		o.key = string(id.Name)
	default:
		o.key = string(id.Namespace) + "/" + string(id.Name)
		o.split = uint16(len(id.Namespace)) + 1
	}
	return o, nil
}

func (f *builder) failed(id *scan.Header, err error) *ObjectError {
	e := &ObjectError{Kind: string(id.Kind[:min(len(id.Kind), maxKind)]), Err: bounded(err)}
	if f.fixed != nil {
		e.Kind = f.fixed.Kind
	}
	if len(id.Namespace)+len(id.Name) >= maxKey {
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
func (f *builder) withType(item []byte, kind *Kind, found uint16) []byte {
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
