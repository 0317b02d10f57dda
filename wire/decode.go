// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/internal/views"
	"github.com/watershed-project/watershed/wire/internal/jsondecode"
	"github.com/watershed-project/watershed/wire/internal/protodecode"
)

// Pointer is satisfied by *P.
type Pointer[P any] interface{ *P }

// Decode returns the object as a T: a Go type of the Kubernetes API,
// [*unstructured.Unstructured], [*metav1.PartialObjectMetadata], any other type that JSON
// can be decoded into, or the [*Object] itself. A [runtime.Object] always has its
// apiVersion and kind set.
//
// All callers that decode the same object as the same T get the same value while one of
// them holds it. It must not be modified. It is freed when no caller holds it. If the
// object cannot be decoded, the error is an [*ObjectError].
func Decode[T Pointer[P], P any](o *Object) (T, error) {
	if held, ok := Held[T](o); ok {
		return held, nil
	}
	value, err := DecodeFresh[T](o)
	if err != nil {
		return nil, err
	}
	return Share(o, (*P)(value)), nil
}

// Held returns the value that [Decode] would return, if it exists already.
func Held[T Pointer[P], P any](o *Object) (T, bool) {
	if self, ok := any(o).(T); ok {
		return self, true
	}
	v := views.Find[P](&o.views)
	if v == nil {
		return nil, false
	}
	p := v.Value()
	return p, p != nil
}

// DecodeFresh is [Decode], but the value is new and the caller owns it. For [*Object] it
// still returns the object itself.
func DecodeFresh[T Pointer[P], P any](o *Object) (T, error) {
	if self, ok := any(o).(T); ok {
		return self, nil
	}
	into := T(new(P))
	if err := o.DecodeInto(into); err != nil {
		return nil, err
	}
	return into, nil
}

// DecodeInto is [DecodeFresh] for a type that is known only at run time: into is a
// pointer to an empty value of it. After an error the content of into is undefined.
func (o *Object) DecodeInto(into any) error {
	raw, opened := o.open()
	defer opened.Free()
	var err error
	switch into := into.(type) {
	case *unstructured.Unstructured:
		into.Object, err = o.unstructured(raw)
	case *metav1.PartialObjectMetadata:
		err = o.objectMeta(raw, &into.ObjectMeta)
	default:
		err = o.decodeTyped(raw, into)
	}
	if err != nil {
		return &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: fmt.Errorf("decode as %T: %w", into, err)}
	}
	o.setKind(into)
	return nil
}

// setKind sets the apiVersion and kind of a value, which its bytes may lack.
func (o *Object) setKind(value any) {
	if typed, ok := value.(runtime.Object); ok {
		typed.GetObjectKind().SetGroupVersionKind(o.kind.GroupVersionKind)
	}
}

func (o *Object) decodeTyped(raw []byte, into any) error {
	if o.encoding == JSON {
		return o.unmarshal(func() error { return jsondecode.Unmarshal(raw, into) })
	}
	if own := o.kind.goType(); own != nil && own != reflect.TypeOf(into) {
		if _, ok := into.(runtime.Object); ok {
			// A message of another type would be filled from fields that happen to have
			// the same number.
			return fmt.Errorf("it is a %v", own)
		}
	}
	if message, ok := into.(protobuf.Message); ok {
		return o.unmarshal(func() error {
			v := reflect.ValueOf(into).Elem()
			if m := protodecode.LayoutOf(v.Type()); m != nil {
				m.Reserve(v, raw)
			}
			return message.Unmarshal(raw)
		})
	}
	own, err := o.own(raw)
	if err != nil {
		return err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	return o.unmarshal(func() error { return jsondecode.Unmarshal(text, into) })
}

// unmarshal converts a panic in the code of a type into an error.
func (o *Object) unmarshal(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return do()
}

// own decodes the object from protobuf into the Go type of its kind.
func (o *Object) own(raw []byte) (runtime.Object, error) {
	if o.kind.New == nil {
		return nil, errNoType
	}
	own := o.kind.New()
	message, ok := own.(protobuf.Message)
	if !ok {
		return nil, fmt.Errorf("it is protobuf, which %T cannot read", own)
	}
	if err := o.unmarshal(func() error { return message.Unmarshal(raw) }); err != nil {
		return nil, err
	}
	own.GetObjectKind().SetGroupVersionKind(o.kind.GroupVersionKind)
	return own, nil
}

func (o *Object) unstructured(raw []byte) (map[string]any, error) {
	if o.encoding == JSON {
		var m map[string]any
		err := jsondecode.Unmarshal(raw, &m)
		return m, err
	}
	own, err := o.own(raw)
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

// objectMeta decodes only the metadata.
func (o *Object) objectMeta(raw []byte, into *metav1.ObjectMeta) error {
	if o.encoding == JSON {
		s := scan.JSON{B: raw}
		scan.EnterMember(&s, "metadata")
		return jsondecode.Unmarshal(s.Value(), into)
	}
	p := protobuf.Scanner{Data: raw}
	for scan.NextMetadata(&p) {
		// The generated code merges into the existing value, as is required for a message
		// field that occurs twice.
		if err := into.Unmarshal(p.Bytes()); err != nil {
			return err
		}
	}
	if p.Bad {
		return scan.ErrProtobuf
	}
	return nil
}

// DecodeIntoLike is [Object.DecodeInto] for an object that is another state of like, which
// was decoded as value: into and value are pointers to the same type, and into is empty.
// The two values then share what they have in common, which takes less time and less
// memory, and a part that was modified in one is modified in the other. So the value is not
// for readers that did not ask for it. Where sharing is not possible, the object is decoded
// as usual.
func (o *Object) DecodeIntoLike(into any, like *Object, value any) error {
	t := reflect.TypeOf(into)
	if reflect.TypeOf(value) != t || !o.resembles(like, t) || reflect.ValueOf(value).IsNil() {
		return o.DecodeInto(into)
	}
	v := reflect.ValueOf(into).Elem()
	if !o.decodeLike(like, v, reflect.ValueOf(value).Elem()) {
		v.SetZero()
		return o.DecodeInto(into)
	}
	return nil
}

// resembles reports whether both objects are messages of the Go type t.
func (o *Object) resembles(like *Object, t reflect.Type) bool {
	return o.encoding == Protobuf && like.encoding == Protobuf &&
		o.kind.GroupVersionKind == like.kind.GroupVersionKind &&
		o.kind.goType() == t && like.kind.goType() == t
}

// decodeLike fills into, and reports whether that was possible.
func (o *Object) decodeLike(like *Object, into, value reflect.Value) (ok bool) {
	raw, s := o.open()
	defer s.Free()
	likeRaw, ls := like.open()
	defer ls.Free()
	err := o.unmarshal(func() error {
		// The type of the object is not in its bytes.
		if m := protodecode.LayoutOf(into.Type()); m != nil {
			ok = m.Fill(into, value, raw, likeRaw)
		}
		return nil
	})
	if ok = ok && err == nil; ok {
		o.setKind(into.Addr().Interface())
	}
	return ok
}
