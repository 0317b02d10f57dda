// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of Kubernetes as the API server sent it: bytes, and the
// little that is needed to file them. Nothing in it ever changes; all methods are
// safe for concurrent use.
//
// It costs 80 bytes beside its key and its bytes; each Go type it was decoded
// into costs some 50 more.
type Object struct {
	kind *Kind
	key  string
	raw  []byte
	// views are the decoded values that somebody may still hold.
	views atomic.Pointer[view]
	// version is the resourceVersion, 0 if that is not a number.
	version uint64
	// split is where the name begins in key: 0 without a namespace.
	split    uint32
	encoding Encoding
}

// Key is "namespace/name", or "name" for an object without a namespace.
func (o *Object) Key() string { return o.key }

// Namespace is the part of the key before the slash.
func (o *Object) Namespace() string { return o.key[:max(o.split, 1)-1] }

// Name is the part of the key after the slash.
func (o *Object) Name() string { return o.key[o.split:] }

// Version is the resourceVersion as a number, 0 if it is none.
func (o *Object) Version() uint64 { return o.version }

// GroupVersionKind says what the object is. It is never empty.
func (o *Object) GroupVersionKind() schema.GroupVersionKind { return o.kind.GroupVersionKind }

// Kind is what the object is, shared with others of its kind.
func (o *Object) Kind() *Kind { return o.kind }

// Encoding is that of Bytes.
func (o *Object) Encoding() Encoding { return o.encoding }

// Bytes are the object's. They are shared and must not be changed.
func (o *Object) Bytes() []byte { return o.raw }

// String is kind, key and version, for logs.
func (o *Object) String() string {
	return o.kind.Kind + " " + o.key + "@" + strconv.FormatUint(o.version, 10)
}

// Same reports that two objects have the same version and the same bytes. The
// bytes count because versions begin again when etcd is restored from a backup,
// and because another server version may write the same object differently.
func Same(a, b *Object) bool {
	return a == b || a.version == b.version && a.encoding == b.encoding && a.kind.GroupVersionKind == b.kind.GroupVersionKind && string(a.raw) == string(b.raw)
}
