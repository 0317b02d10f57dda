// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"strings"
	"sync/atomic"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/views"
)

// Object is a Kubernetes object as the API server sent it: its bytes, and the few fields
// that are needed to file them. Its content never changes. How its bytes are stored can
// change. All methods are safe for concurrent use.
//
// An object costs 96 bytes in addition to its key and its bytes. Each Go type that it was
// decoded into costs about 75 more. Packed objects with the same labels share them. Labels
// that take more than 4 KiB are not stored.
type Object struct {
	kind *Kind
	key  string
	body atomic.Pointer[pack.Body]
	// views are the decoded values that callers may still hold.
	views views.List
	// labels are the labels of a packed object, see labels.go. They are written before
	// the first packed body.
	labels unique.Handle[string]
	// version is the resourceVersion, 0 if that is not a number.
	version uint64
	// lease counts the readers of the bytes as they arrived, see [buffer.Lease].
	lease buffer.Lease
	// split is the index in key at which the name begins, 0 if there is no namespace.
	split    uint16
	encoding Encoding
}

// unlabelled marks an object whose labels are not stored.
var unlabelled unique.Handle[string]

// Assemble returns an object from its parts, which it does not check. It is for the package
// of this module that restores stored objects.
func Assemble(
	kind *Kind, e Encoding, key string, version uint64, body *pack.Body, labels unique.Handle[string],
) *Object {
	o := &Object{kind: kind, key: key, labels: labels, version: version, encoding: e}
	o.split = uint16(strings.IndexByte(key, '/') + 1)
	o.body.Store(body)
	return o
}

// with returns the object with another version and other bytes.
func (o *Object) with(version uint64, raw []byte) *Object {
	return Assemble(o.kind, o.encoding, o.key, version, &pack.Body{Data: raw}, unlabelled)
}

// Cell returns how the object stores its bytes. It is for the package of this module that
// packs objects.
func (o *Object) Cell() pack.Cell {
	return pack.Cell{Body: &o.body, Labels: &o.labels, Lease: &o.lease}
}

// open returns the object's bytes, valid until the second result is freed.
func (o *Object) open() ([]byte, pack.Opened) { return o.Cell().Open() }

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
	if b.How == nil {
		o.lease.End()
		if b = o.body.Load(); b.How == nil {
			return b.Data
		}
	}
	return b.How.Unpack(nil, b.Data)
}

// Size returns the bytes that the object takes now: itself, its key and its bytes, packed
// or not. If the bytes are stored as a difference from an earlier state, it includes that
// state. If they are stored as a difference from another object, it does not.
func (o *Object) Size() int {
	return objectSize + len(o.key) + o.body.Load().Size()
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
	if b.How == nil {
		return len(b.Data)
	}
	return b.How.Length(b.Data)
}

// Packed reports whether the bytes are stored packed.
func (o *Object) Packed() bool { return o.body.Load().How != nil }

// objectSize is the size of an [Object] in bytes, without its key and its body.
const objectSize = 64

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
	defer sx.Free()
	y, sy := b.open()
	defer sy.Free()
	return string(x) == string(y)
}

// Share makes p the value of its type that [Held] returns for an object, unless there already
// is one. It returns the shared value. [Decode] shares values by itself.
func Share[P any](o *Object, p *P) *P {
	first, _ := views.Share(&o.views, p)
	return first
}

// Views returns the values that the object was decoded into. It is for the package of this
// module that keeps them.
func (o *Object) Views() *views.List { return &o.views }
