// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

// prototype holds the properties of an informer's objects that follow from its example.
type prototype struct {
	// goType is the type of all objects, a pointer. It is nil without an example: then
	// each value keeps its own type.
	goType reflect.Type
	// kind is the kind of all objects, nil if they contain it themselves.
	kind *wire.Kind
	// nameless is the kind of values without a kind of their own, if it is not known from
	// elsewhere. It is internal: decoded values do not have it.
	nameless *wire.Kind
	// encoding is the encoding for values.
	encoding wire.Encoding
	// keepsKind is [Options.KeepKind].
	keepsKind bool
	// stated holds the kinds, by name, of typed values that came with their apiVersion
	// and kind. It is nearly always empty, because clients clear these fields.
	stated sync.Map
}

// typeError reports that a value has another Go type than the informer's objects.
type typeError struct{ is, want reflect.Type }

func (e *typeError) Error() string {
	return fmt.Sprintf("the object is a %v, but the informer is of %v", e.is, e.want)
}

func newPrototype(example runtime.Object, known *runtime.Scheme, keepsKind bool) *prototype {
	p := &prototype{
		keepsKind: keepsKind,
		encoding:  wire.JSON,
		nameless:  &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Kind: "Object"}},
	}
	if example == nil || reflect.TypeOf(example).Kind() != reflect.Pointer {
		return p
	}
	p.goType = reflect.TypeOf(example)
	p.nameless.Kind = p.goType.Elem().Name()
	gvk := example.GetObjectKind().GroupVersionKind()
	switch example.(type) {
	case *unstructured.Unstructured:
		// Each object contains its own kind, and an object without one is rejected.
		p.nameless = nil
	case *metav1.PartialObjectMetadata:
		p.encoding = wire.Protobuf
		if !gvk.Empty() {
			p.kind = &wire.Kind{GroupVersionKind: gvk}
		}
	default:
		p.nameless.New = p.empty
		if _, kind, builtin := kube.ResourceOf(example); builtin {
			// Other types may have a Marshal method for protobuf that is not their own,
			// but that of an embedded type.
			p.kind, p.encoding = kind, wire.Protobuf
		} else if gvk = kindOfType(example, gvk, known); !gvk.Empty() {
			p.kind = &wire.Kind{GroupVersionKind: gvk, New: p.empty}
		}
	}
	return p
}

// kindOfType returns the kind that is set in the example, or else the one in the scheme,
// if there is exactly one.
func kindOfType(example runtime.Object, own schema.GroupVersionKind, known *runtime.Scheme) schema.GroupVersionKind {
	if known == nil {
		known = scheme.Scheme
	}
	if kinds, _, err := known.ObjectKinds(example); own.Empty() && err == nil && len(kinds) == 1 {
		return kinds[0]
	}
	return own
}

// String returns the kind or, if it is not known, the Go type.
func (p *prototype) String() string {
	switch {
	case p.goType == nil:
		return "objects"
	case p.kind != nil:
		return p.kind.Kind
	default:
		return p.goType.String()
	}
}

// reads reports whether objects in an encoding can be decoded.
func (p *prototype) reads(e wire.Encoding) bool {
	switch {
	case p.goType == nil:
		return false // there is no type to decode them into
	case p.goType == reflect.TypeFor[*metav1.PartialObjectMetadata]():
		return true
	default:
		return e == wire.JSON || p.encoding == wire.Protobuf
	}
}

// empty returns a new value of the Go type.
func (p *prototype) empty() runtime.Object {
	return reflect.New(p.goType.Elem()).Interface().(runtime.Object)
}

// decode decodes an object into a new value.
func (p *prototype) decode(o *wire.Object) (runtime.Object, error) { return p.decodeLike(o, nil, nil) }

// decodeLike is decode, but the value shares parts with that of another state, if like is
// not nil.
func (p *prototype) decodeLike(o, like *wire.Object, value runtime.Object) (runtime.Object, error) {
	var into runtime.Object
	switch {
	case p.goType != nil:
		into = p.empty()
	case o.Kind().New != nil:
		into = o.Kind().New()
	default:
		into = &unstructured.Unstructured{}
	}
	if like == nil {
		if err := o.DecodeInto(into); err != nil {
			return nil, err
		}
	} else if err := o.DecodeIntoLike(into, like, value); err != nil {
		return nil, err
	}
	if o.GroupVersionKind().Version == "" || isTyped(into) && !p.keepsKind && !p.isStated(o) {
		into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return into, nil
}

// encode makes an object from a value. It does not keep the value.
func (p *prototype) encode(value any) (*wire.Object, error) {
	obj, ok := value.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", value)
	}
	t := reflect.TypeOf(value)
	if p.goType != nil && t != p.goType {
		return nil, &typeError{is: t, want: p.goType}
	}
	if isNil(value) {
		return nil, errNothing
	}
	kind, encoding := p.kind, p.encoding
	own := obj.GetObjectKind().GroupVersionKind()
	if p.goType == nil {
		kind, encoding = kindOfAny(obj)
	} else if kind == nil && own.Empty() {
		kind = p.nameless
	}
	if isTyped(obj) && !p.keepsKind && !own.Empty() {
		kind = p.state(own, t)
	}
	return wire.Encode(value, encoding, kind)
}

// encodeLike encodes the value that a transform made from an object.
func (p *prototype) encodeLike(value runtime.Object, o *wire.Object) (*wire.Object, error) {
	kind := o.Kind()
	if isTyped(value) && !p.keepsKind {
		switch own := value.GetObjectKind().GroupVersionKind(); {
		case !own.Empty():
			kind = p.state(own, reflect.TypeOf(value))
		case p.isStated(o):
			return p.encode(value)
		}
	}
	return wire.Encode(value, o.Encoding(), kind)
}

// isTyped reports whether a value has a Go type that determines its kind: clients leave
// apiVersion and kind empty in such values. In all other values these two are content.
func isTyped(value runtime.Object) bool {
	switch value.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		return false
	}
	return true
}

// state returns the kind of typed values that came with apiVersion and kind.
func (p *prototype) state(gvk schema.GroupVersionKind, t reflect.Type) *wire.Kind {
	kind, _ := p.stated.LoadOrStore(gvk, &wire.Kind{GroupVersionKind: gvk, New: func() runtime.Object {
		return reflect.New(t.Elem()).Interface().(runtime.Object)
	}})
	return kind.(*wire.Kind)
}

// isStated reports whether an object was made from a typed value that came with its
// apiVersion and kind.
func (p *prototype) isStated(o *wire.Object) bool {
	kind, ok := p.stated.Load(o.GroupVersionKind())
	return ok && kind == o.Kind()
}

// kindOfAny returns the kind and the encoding of a value if there was no example. The
// kind is nil if the value contains it.
func kindOfAny(value runtime.Object) (*wire.Kind, wire.Encoding) {
	if _, kind, builtin := kube.ResourceOf(value); builtin {
		return kind, wire.Protobuf
	}
	if !value.GetObjectKind().GroupVersionKind().Empty() {
		return nil, wire.JSON
	}
	p := newPrototype(value, nil, false)
	if p.kind != nil {
		return p.kind, wire.JSON
	}
	return p.nameless, wire.JSON
}
