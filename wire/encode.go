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
