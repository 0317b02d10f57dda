// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"errors"
	"reflect"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// errNothing is returned for nil in place of an object.
var errNothing = errors.New("there is no object")

// storeKey returns the key of an object or of a [cache.DeletedFinalStateUnknown].
func storeKey(obj any) (string, error) {
	if isNil(obj) {
		return "", cache.KeyError{Obj: obj, Err: errNothing} // client-go would panic
	}
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return "", cache.KeyError{Obj: obj, Err: err}
	}
	return key, nil
}

// identify returns the key of an object, and whether the object is known to have none.
func identify(obj any) (key string, nameless bool) {
	key, err := storeKey(obj)
	return key, err == nil && key == ""
}

// keyOf returns an object's key, "" if it has none.
func keyOf(obj any) string {
	key, _ := storeKey(obj)
	return key
}

// namespaceOf returns the namespace in a key.
func namespaceOf(key string) string {
	namespace, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return namespace
}

// isNil reports whether a value is a nil pointer.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
