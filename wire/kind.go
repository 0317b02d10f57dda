// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the type of objects. All objects of a list share one.
type Kind struct {
	schema.GroupVersionKind
	// New makes an empty value of the Go type of this kind, so that an object in protobuf
	// can be decoded into another type than its own. It is nil for kinds without a Go
	// type, which arrive as JSON.
	New func() runtime.Object

	once  sync.Once
	found reflect.Type
}

// goType returns the type of the values that New makes, nil if New is nil.
func (k *Kind) goType() reflect.Type {
	k.once.Do(func() {
		if k.New != nil {
			k.found = reflect.TypeOf(k.New())
		}
	})
	return k.found
}

// Encoding is the encoding of an object's bytes.
type Encoding uint8

const (
	// JSON is one JSON object, with its apiVersion and kind.
	JSON Encoding = iota + 1
	// Protobuf is the bare message: no magic number and no envelope.
	Protobuf
)

// String returns "JSON" or "Protobuf".
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "JSON"
	case Protobuf:
		return "Protobuf"
	default:
		return "unknown encoding"
	}
}

// kinds returns the Kind of objects: the caller's, or else one made from the type in the
// bytes. Consecutive objects of the same type share it.
type kinds struct {
	fixed *Kind

	last             *Kind
	apiVersion, kind string
}

func (k *kinds) of(apiVersion, kind []byte) (*Kind, error) {
	if k.fixed != nil {
		return k.fixed, nil
	}
	if k.last != nil && string(apiVersion) == k.apiVersion && string(kind) == k.kind {
		return k.last, nil
	}
	if len(apiVersion) == 0 || len(kind) == 0 {
		return nil, errUntyped
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
	k.apiVersion, k.kind = string(apiVersion), string(kind)
	k.last = &Kind{GroupVersionKind: gv.WithKind(k.kind)}
	return k.last, nil
}

// ofList returns the kind of a list's items, derived from the kind of the list.
func (k *kinds) ofList(apiVersion, kind string) (*Kind, error) {
	if k.fixed != nil {
		return k.fixed, nil
	}
	item, ok := strings.CutSuffix(kind, "List")
	if !ok || item == "" {
		return nil, fmt.Errorf("the kind of the items cannot be derived from a list of kind %.100q", kind)
	}
	return k.of([]byte(apiVersion), []byte(item))
}
