// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"sync/atomic"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is a Kubernetes object as the API server sent it: its bytes, and the few fields
// that are needed to file them. Its content never changes. How its bytes are stored can
// change, see [Packer]. All methods are safe for concurrent use.
//
// An object costs 96 bytes in addition to its key and its bytes. Each Go type that it was
// decoded into costs about 50 more. Packed objects with the same labels share them. Labels
// that take more than 4 KiB are not stored.
type Object struct {
	kind *Kind
	key  string
	body atomic.Pointer[body]
	// views are the decoded values that callers may still hold.
	views atomic.Pointer[view]
	// labels are the labels of a packed object, see labels.go. They are written before
	// the first packed body.
	labels unique.Handle[string]
	// version is the resourceVersion, 0 if that is not a number.
	version uint64
	// split is the index in key at which the name begins, 0 if there is no namespace.
	split    uint32
	encoding Encoding
}

// body is the stored form of an object's bytes: as they are, or packed with a dictionary.
// It never changes. A dictionary lives as long as a body needs it.
type body struct {
	data []byte
	dict *dictionary
}

// open returns the object's bytes, valid until the scratch is freed.
func (o *Object) open() ([]byte, *scratch) {
	b := o.body.Load()
	if b.dict == nil {
		return b.data, nil
	}
	s := newScratch()
	s.b = b.dict.unpack(s.b, b.data)
	return s.b, s
}

// Key returns "namespace/name", or "name" for an object without a namespace.
func (o *Object) Key() string { return o.key }

// Namespace returns the part of the key before the slash.
func (o *Object) Namespace() string { return o.key[:max(o.split, 1)-1] }

// Name returns the part of the key after the slash.
func (o *Object) Name() string { return o.key[o.split:] }

// Version returns the resourceVersion as a number, 0 if it is not a number.
func (o *Object) Version() uint64 { return o.version }

// GroupVersionKind returns the object's type. It is never empty.
func (o *Object) GroupVersionKind() schema.GroupVersionKind { return o.kind.GroupVersionKind }

// Kind returns the object's kind, which is shared with other objects of the kind.
func (o *Object) Kind() *Kind { return o.kind }

// Encoding returns the encoding of Bytes.
func (o *Object) Encoding() Encoding { return o.encoding }

// Bytes returns the object's bytes. They are shared and must not be modified. For a
// packed object, every call unpacks them into a new slice.
func (o *Object) Bytes() []byte {
	b := o.body.Load()
	if b.dict == nil {
		return b.data
	}
	return b.dict.unpack(nil, b.data)
}

// Size returns the bytes that the object takes now: itself, its key and its bytes, packed
// or not.
func (o *Object) Size() int {
	return objectSize + bodySize + len(o.key) + cap(o.body.Load().data)
}

// Footprint returns Size and the stored labels, as if no other object shared them.
func (o *Object) Footprint() int {
	n := o.Size()
	if o.Packed() && o.labels != unlabelled {
		n += len(o.labels.Value())
	}
	return n
}

// Length returns the approximate length of the unpacked bytes.
func (o *Object) Length() int {
	b := o.body.Load()
	if b.dict == nil {
		return len(b.data)
	}
	return b.dict.length(b.data)
}

// Packed reports whether the bytes are stored packed.
func (o *Object) Packed() bool { return o.body.Load().dict != nil }

const (
	// objectSize is the size of an [Object] in bytes.
	objectSize = 64
	// bodySize is the size of its body in bytes, without the data.
	bodySize = 32
)

// String returns kind, key and version, for logs.
func (o *Object) String() string {
	return o.kind.Kind + " " + o.key + "@" + strconv.FormatUint(o.version, 10)
}

// Same reports whether two objects have the same version and the same bytes. It compares
// the bytes because versions repeat after etcd is restored from a backup, and because
// another server version may encode the same object differently.
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
