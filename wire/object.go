// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"sync/atomic"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of Kubernetes as the API server sent it: bytes, and the
// little that is needed to file them. What it says never changes; how its bytes are
// kept may, see [Packer]. All methods are safe for concurrent use.
//
// It costs 96 bytes beside its key and its bytes; each Go type it was decoded
// into costs some 50 more, and the labels of a packed one are shared with all that
// have the same.
type Object struct {
	kind *Kind
	key  string
	body atomic.Pointer[body]
	// views are the decoded values that somebody may still hold.
	views atomic.Pointer[view]
	// labels are those of a packed object, see labels.go. They are written before
	// the first packed body.
	labels unique.Handle[string]
	// version is the resourceVersion, 0 if that is not a number.
	version uint64
	// split is where the name begins in key: 0 without a namespace.
	split    uint32
	encoding Encoding
}

// body is how an object's bytes are kept: as they are, or packed with a dictionary.
// It never changes. A dictionary lives while a body needs it.
type body struct {
	data []byte
	dict *dictionary
}

// open returns the object's bytes for reading until the scratch is freed.
func (o *Object) open() ([]byte, *scratch) {
	b := o.body.Load()
	if b.dict == nil {
		return b.data, nil
	}
	s := newScratch()
	s.b = b.dict.unpack(s.b, b.data)
	return s.b, s
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

// Bytes are the object's. They are shared and must not be changed. Those of a
// packed object are made by every call.
func (o *Object) Bytes() []byte {
	b := o.body.Load()
	if b.dict == nil {
		return b.data
	}
	return b.dict.unpack(nil, b.data)
}

// Size is how many bytes the object takes now: itself, its key and its bytes,
// packed or not.
func (o *Object) Size() int {
	return objectSize + bodySize + len(o.key) + cap(o.body.Load().data)
}

// Length is that of the bytes, about.
func (o *Object) Length() int {
	b := o.body.Load()
	if b.dict == nil {
		return len(b.data)
	}
	return b.dict.length(b.data)
}

// Packed reports whether the bytes are kept packed.
func (o *Object) Packed() bool { return o.body.Load().dict != nil }

const (
	// objectSize is the size of an [Object] in bytes.
	objectSize = 64
	// bodySize is the size of its body in bytes, without the data.
	bodySize = 32
)

// String is kind, key and version, for logs.
func (o *Object) String() string {
	return o.kind.Kind + " " + o.key + "@" + strconv.FormatUint(o.version, 10)
}

// Same reports that two objects have the same version and the same bytes. The
// bytes count because versions begin again when etcd is restored from a backup,
// and because another server version may write the same object differently.
func Same(a, b *Object) bool {
	if a == b {
		return true
	}
	if a.version != b.version || a.encoding != b.encoding || a.kind.GroupVersionKind != b.kind.GroupVersionKind {
		return false
	}
	x, sx := a.open()
	defer sx.free()
	y, sy := b.open()
	defer sy.free()
	return string(x) == string(y)
}
