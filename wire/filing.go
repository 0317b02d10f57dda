// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonOptions are the rules for checking JSON. They match apimachinery, which replaces
// invalid UTF-8 and accepts duplicate names. To remember all names of all objects would
// cost more than the rest of the work. Where a duplicate would change an object's
// identity, filing rejects it.
var jsonOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// NewObject files the bytes of one object: a complete JSON object, or a bare protobuf
// message. It keeps raw, which must not be modified afterwards. JSON without apiVersion
// or kind is copied, with the missing ones added. If kind is nil, JSON must contain both.
//
// If the bytes cannot be filed, the error is an [*ObjectError].
func NewObject(raw []byte, e Encoding, kind *Kind) (*Object, error) {
	f := filing{kinds: kinds{fixed: kind}}
	switch {
	case len(raw) > maxObject:
		return nil, f.failed(&identity{}, errTooLarge)
	case e == JSON && !jsontext.Value(raw).IsValid(jsonOptions...):
		return nil, f.failed(&identity{}, errJSON)
	case e == JSON:
		return f.json(&identity{}, bytes.TrimSpace(raw), nil, true)
	case e == Protobuf && kind == nil:
		return nil, f.failed(&identity{}, errUntyped)
	case e == Protobuf:
		return f.protobuf(&identity{}, raw, kind)
	default:
		return nil, f.failed(&identity{}, errors.New(e.String()))
	}
}

// ReadObject reads the response to a GET: a JSON object, or protobuf with its magic
// number and envelope. If kind is not nil, it overrides the type in the bytes.
//
// If the bytes were read but cannot be filed, the error is an [*ObjectError].
func ReadObject(r io.Reader, e Encoding, kind *Kind) (*Object, error) {
	body, err := io.ReadAll(io.LimitReader(r, maxObject+1))
	if err == nil && len(body) > maxObject {
		err = errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("wire: read an object: %w", err)
	}
	if e != Protobuf {
		return NewObject(bytes.Clone(body), e, kind)
	}
	f := filing{kinds: kinds{fixed: kind}}
	env, err := openEnvelope(body)
	if err != nil {
		return nil, f.failed(&identity{}, err)
	}
	if kind, err = f.of(env.apiVersion, env.kind); err != nil {
		return nil, f.failed(&identity{}, err)
	}
	return f.protobuf(&identity{}, bytes.Clone(env.raw), kind)
}

// filing makes objects. It remembers what consecutive objects have in common: the kind,
// and the JSON text for it.
type filing struct {
	kinds

	headOf           *Kind
	headKind, headGV []byte
}

// json files an object that is well-formed JSON without space around it. ofList is the
// kind of an object that does not contain its own. The bytes are copied unless owned.
func (f *filing) json(id *identity, item []byte, ofList *Kind, owned bool) (*Object, error) {
	if err := id.scanJSON(item); err != nil {
		return nil, f.failed(id, err)
	}
	kind := ofList
	if kind == nil || id.found&foundType != 0 {
		var err error
		if kind, err = f.of(id.apiVersion, id.kind); err != nil {
			return nil, f.failed(id, err)
		}
	}
	switch {
	case id.found&foundType != foundType:
		item = f.withType(item, kind, id.found)
	case !owned:
		item = newCopy(item)
	default:
		return f.object(item, JSON, kind, id)
	}
	return leased(f.object(item, JSON, kind, id))
}

// leased allows to recycle the bytes of a new object. Nothing else may refer to them.
func leased(o *Object, err error) (*Object, error) {
	if err == nil {
		o.lease.begin()
	}
	return o, err
}

// protobuf files a bare message, which it keeps.
func (f *filing) protobuf(id *identity, item []byte, kind *Kind) (*Object, error) {
	if err := id.scanProtobuf(item); err != nil {
		id.kind = []byte(kind.Kind)
		return nil, f.failed(id, err)
	}
	return f.object(item, Protobuf, kind, id)
}

func (f *filing) object(raw []byte, e Encoding, kind *Kind, id *identity) (*Object, error) {
	o := &Object{kind: kind, encoding: e, version: parseVersion(id.version)}
	o.body.Store(&body{data: raw})
	switch {
	case len(id.name) == 0:
		return nil, f.failed(id, errNoName)
	case bytes.IndexByte(id.name, '/') >= 0 || bytes.IndexByte(id.namespace, '/') >= 0:
		return nil, f.failed(id, errSlash)
	case len(id.namespace)+len(id.name) >= maxKey:
		return nil, f.failed(id, errLongName)
	case tooManyLabels(raw, e):
		return nil, f.failed(id, errLabels)
	case len(id.namespace) == 0:
		o.key = string(id.name)
	default:
		o.key = string(id.namespace) + "/" + string(id.name)
		o.split = uint16(len(id.namespace)) + 1
	}
	return o, nil
}

func (f *filing) failed(id *identity, err error) *ObjectError {
	e := &ObjectError{Kind: string(id.kind[:min(len(id.kind), maxKind)]), Err: bounded(err)}
	if f.fixed != nil {
		e.Kind = f.fixed.Kind
	}
	if len(id.namespace)+len(id.name) >= maxKey {
		return e // no object has such a key
	}
	if e.Key = string(id.name); e.Key != "" && len(id.namespace) > 0 {
		e.Key = string(id.namespace) + "/" + e.Key
	}
	return e
}

// withType copies the item and adds its missing kind and apiVersion, in the order and the
// form that the API server uses in watch events. That way an object has the same bytes
// however it arrived.
func (f *filing) withType(item []byte, kind *Kind, found uint16) []byte {
	if f.headOf != kind {
		quotedKind, _ := jsontext.AppendQuote(nil, kind.Kind)
		quotedGV, _ := jsontext.AppendQuote(nil, kind.GroupVersion().String())
		f.headOf = kind
		f.headKind = fmt.Appendf(nil, "\"kind\":%s,", quotedKind)
		f.headGV = fmt.Appendf(nil, "\"apiVersion\":%s,", quotedGV)
	}
	var headKind, headGV []byte
	if found&foundKind == 0 {
		headKind = f.headKind
	}
	if found&foundAPIVersion == 0 {
		headGV = f.headGV
	}
	typed := newBuffer(len(item) + len(headKind) + len(headGV))[:0]
	typed = append(typed, '{')
	typed = append(typed, headKind...)
	typed = append(typed, headGV...)
	return append(typed, item[1:]...)
}
