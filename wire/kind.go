// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"reflect"
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
	names := [...]string{"unknown encoding", JSON: "JSON", Protobuf: "Protobuf"}
	if int(e) >= len(names) {
		return names[0]
	}
	return names[e]
}
