// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Pointer is satisfied by *P.
type Pointer[P any] interface{ *P }

// unmarshaler is what the Go types of built-in kinds are.
type unmarshaler interface{ Unmarshal([]byte) error }

// Decode gives the object as a T: a Go type of the Kubernetes API,
// [*unstructured.Unstructured], [*metav1.PartialObjectMetadata], any other type
// that JSON can fill, or the [*Object] itself. What is a [runtime.Object] always
// says its apiVersion and kind.
//
// All who decode the same object as the same T while somebody holds the value
// get that one value. It must not be changed. Nothing is kept of it when nobody
// holds it any more. What cannot be decoded is an [*ObjectError].
func Decode[T Pointer[P], P any](o *Object) (T, error) {
	if self, ok := any(o).(T); ok {
		return self, nil
	}
	if p := shared[P](o.views.Load()); p != nil {
		return p, nil
	}
	p, err := DecodeFresh[T](o)
	if err != nil {
		return nil, err
	}
	return share(o, (*P)(p)), nil
}

// DecodeFresh is [Decode], but the value is new and the caller's own. An
// [*Object] is still the object itself.
func DecodeFresh[T Pointer[P], P any](o *Object) (T, error) {
	var into T
	var err error
	switch any(into).(type) {
	case *Object:
		return any(o).(T), nil
	case *unstructured.Unstructured:
		u := &unstructured.Unstructured{}
		into = any(u).(T)
		u.Object, err = o.unstructured()
	case *metav1.PartialObjectMetadata:
		m := &metav1.PartialObjectMetadata{}
		into = any(m).(T)
		err = o.objectMeta(&m.ObjectMeta)
	default:
		into, err = decodeTyped[T](o)
	}
	if err != nil {
		return nil, &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: fmt.Errorf("decode as %T: %w", into, err)}
	}
	if typed, ok := any(into).(runtime.Object); ok {
		typed.GetObjectKind().SetGroupVersionKind(o.kind.GroupVersionKind)
	}
	return into, nil
}

func decodeTyped[T Pointer[P], P any](o *Object) (T, error) {
	if o.encoding == JSON {
		into := T(new(P))
		return into, o.unmarshal(func() error { return utiljson.Unmarshal(o.raw, into) })
	}
	var into T
	if o.kind.New != nil {
		own := o.kind.New()
		var same bool
		if into, same = own.(T); !same {
			if _, ok := any(into).(runtime.Object); ok {
				// A message of another type would be filled with what has the same number.
				return into, fmt.Errorf("it is a %T", own)
			}
		}
	}
	if into == nil {
		into = new(P)
	}
	if message, ok := any(into).(unmarshaler); ok {
		return into, o.unmarshal(func() error { return message.Unmarshal(o.raw) })
	}
	own, err := o.own()
	if err != nil {
		return into, err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return into, err
	}
	return into, o.unmarshal(func() error { return utiljson.Unmarshal(text, into) })
}

// unmarshal makes an error of a panic in the code of a type.
func (o *Object) unmarshal(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return do()
}

// own is the object as its own Go type, from protobuf.
func (o *Object) own() (runtime.Object, error) {
	if o.kind.New == nil {
		return nil, errors.New("it is protobuf, and its Kind has no Go type (New)")
	}
	own := o.kind.New()
	message, ok := own.(unmarshaler)
	if !ok {
		return nil, fmt.Errorf("it is protobuf, which %T cannot read", own)
	}
	if err := o.unmarshal(func() error { return message.Unmarshal(o.raw) }); err != nil {
		return nil, err
	}
	own.GetObjectKind().SetGroupVersionKind(o.kind.GroupVersionKind)
	return own, nil
}

func (o *Object) unstructured() (map[string]any, error) {
	if o.encoding == JSON {
		var m map[string]any
		return m, utiljson.Unmarshal(o.raw, &m)
	}
	own, err := o.own()
	if err != nil {
		return nil, err
	}
	var m map[string]any
	err = o.unmarshal(func() (err error) {
		m, err = runtime.DefaultUnstructuredConverter.ToUnstructured(own)
		return err
	})
	return m, err
}

// objectMeta decodes the metadata and nothing else.
func (o *Object) objectMeta(into *metav1.ObjectMeta) error {
	if o.encoding == JSON {
		s := jsonScan{b: o.raw}
		enterMember(&s, "metadata")
		return utiljson.Unmarshal(s.value(), into)
	}
	p := protoScan{b: o.raw}
	for p.next() {
		if p.field != 1 {
			continue
		}
		// The generated code adds to what is there, as a message whose field comes
		// twice wants it.
		if err := into.Unmarshal(p.bytes()); err != nil {
			return err
		}
	}
	if p.bad {
		return errProtobuf
	}
	return nil
}
