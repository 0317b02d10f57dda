// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Key returns the key of an object in snapshots and indexes: "namespace/name", or "name"
// for an object without a namespace. It is client-go's MetaNamespaceKeyFunc, which also
// makes the keys of work queues. A *[wire.Object] has a Key method instead.
func Key(obj metav1.Object) string {
	if namespace := obj.GetNamespace(); namespace != "" {
		return namespace + "/" + obj.GetName()
	}
	return obj.GetName()
}

// SplitKey returns the namespace and the name in a key. It fails for text that is not the
// key of an object: if there is no name, if the part before a slash is empty, and if there
// are two slashes.
func SplitKey(key string) (namespace, name string, err error) {
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	if name == "" || namespaced && namespace == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("key %q: not of the form namespace/name or name", key)
	}
	return namespace, name, nil
}
