// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Encode makes an object of a value: a Go type of the Kubernetes API,
// unstructured, metadata, or anything else that JSON can write. It is protobuf if
// that is asked for and the type can write it, else JSON. Without a kind the
// value must say its own. The value is not changed and nothing of it is kept.
//
// What cannot be encoded or filed is an [*ObjectError].
func Encode(value any, e Encoding, kind *Kind) (*Object, error) {
	if kind == nil {
		if kind = kindOfValue(value); kind == nil {
			return nil, &ObjectError{Err: fmt.Errorf("encode %T: %w", value, errUntyped)}
		}
	}
	if u, ok := value.(*unstructured.Unstructured); ok {
		value = u.Object // its own writer adds a line end
	}
	var raw []byte
	var err error
	message, ok := value.(interface{ Marshal() ([]byte, error) })
	if ok = ok && e == Protobuf; ok {
		raw, err = message.Marshal()
	} else {
		e = JSON
		raw, err = json.Marshal(value)
	}
	if err != nil {
		return nil, &ObjectError{Kind: kind.Kind, Err: fmt.Errorf("encode %T: %w", value, err)}
	}
	return NewObject(raw, e, kind)
}

// AppendProtobuf appends the object as a bare message: the bytes of an object in
// protobuf; for an object in JSON the message of its Go type, which does not have the
// members that the type does not have. If the object cannot be converted it returns an
// [*ObjectError] and appends nothing.
func (o *Object) AppendProtobuf(b []byte) ([]byte, error) {
	if o.encoding == Protobuf {
		return o.Append(b), nil
	}
	failed := func(err error) error {
		return &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: fmt.Errorf("write as protobuf: %w", err)}
	}
	if o.kind.New == nil {
		return b, failed(errors.New("it is JSON, and its Kind has no Go type (New)"))
	}
	value := o.kind.New()
	message, ok := value.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return b, failed(fmt.Errorf("it is JSON, and %T has no protobuf", value))
	}
	if err := o.DecodeInto(value); err != nil {
		return b, err
	}
	var raw []byte
	if err := o.unmarshal(func() (err error) {
		raw, err = message.Marshal()
		return err
	}); err != nil {
		return b, failed(err)
	}
	return append(b, raw...), nil
}

// kindOfValue is what a value says it is, nil if it does not.
func kindOfValue(value any) *Kind {
	object, ok := value.(runtime.Object)
	if !ok {
		return nil
	}
	kind := &Kind{GroupVersionKind: object.GetObjectKind().GroupVersionKind()}
	if kind.Version == "" || kind.Kind == "" {
		return nil
	}
	switch t := reflect.TypeOf(value); value.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		// They are not the type of any kind.
	default:
		if t.Kind() == reflect.Pointer {
			kind.New = func() runtime.Object { return reflect.New(t.Elem()).Interface().(runtime.Object) }
		}
	}
	return kind
}
