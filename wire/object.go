// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"strconv"
	"sync/atomic"
	"unique"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/pack"
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
	body atomic.Pointer[pack.Body]
	// views are the decoded values that callers may still hold.
	views atomic.Pointer[view]
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

// opened is what keeps the bytes that open has returned.
type opened struct {
	lease   *buffer.Lease
	scratch *buffer.Scratch
}

// free ends the use of the bytes.
func (o opened) free() {
	o.lease.Release()
	o.scratch.Free()
}

// open returns the object's bytes, valid until the second result is freed.
func (o *Object) open() ([]byte, opened) {
	b := o.body.Load()
	if b.How == nil {
		if o.lease.Take() {
			return b.Data, opened{lease: &o.lease}
		}
		// The bytes are kept, or they were packed and recycled in the meantime.
		if b = o.body.Load(); b.How == nil {
			return b.Data, opened{}
		}
	}
	s := buffer.NewScratch()
	s.B = b.How.Unpack(s.B, b.Data)
	return s.B, opened{scratch: s}
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

// Unify is [Same] for an object that is stored and one that has just arrived. If they are
// the same and the stored one is packed, the other shares its packed bytes, so that its own
// can be freed at once. The arrived object must not be packed at the same time.
func Unify(stored, arrived *Object) bool {
	if !Same(stored, arrived) {
		return false
	}
	if b := stored.body.Load(); stored != arrived && b.How != nil && !arrived.Packed() {
		arrived.labels = stored.labels
		arrived.lease.Recycle(arrived.body.Swap(b).Data)
	}
	return true
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

// view is one of the values that an object was decoded into. Views never change; a chain
// of them is replaced as a whole.
type view struct {
	ref  viewRef
	next *view
}

// viewRef is a viewOf of any type.
type viewRef interface{ dead() bool }

// viewOf holds a value without keeping it alive.
type viewOf[P any] struct{ weak.Pointer[P] }

func (v viewOf[P]) dead() bool { return v.Value() == nil }

// shared returns the value of type P that a caller still holds, nil if there is none.
func shared[P any](v *view) *P {
	for ; v != nil; v = v.next {
		if of, ok := v.ref.(viewOf[P]); ok {
			if p := of.Value(); p != nil {
				return p
			}
		}
	}
	return nil
}

// share makes p the value that all callers get from an object with these views, unless
// there already is one. It returns the shared value.
func share[P any](views *atomic.Pointer[view], p *P) *P {
	ref := viewOf[P]{weak.Make(p)}
	for {
		old := views.Load()
		if first := shared[P](old); first != nil {
			return first
		}
		chain := &view{ref: ref}
		for v := old; v != nil; v = v.next {
			if !v.ref.dead() {
				chain.next = &view{ref: v.ref, next: chain.next}
			}
		}
		if views.CompareAndSwap(old, chain) {
			return p
		}
	}
}
