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

// prototype is what an informer knows of its objects from the example that it was
// made with.
type prototype struct {
	// goType is that of all objects, a pointer. It is nil without an example:
	// then each value keeps its own.
	goType reflect.Type
	// kind is what all objects are, nil if they say it themselves.
	kind *wire.Kind
	// nameless is the kind of values that do not say theirs, where nobody else
	// knows it either. It stays inside: decoded values have none.
	nameless *wire.Kind
	// encoding is what values become.
	encoding wire.Encoding
	// keepsKind is [Options.KeepKind].
	keepsKind bool
	// stated are the kinds, by name, of typed values that came with their apiVersion and kind. Nearly always there
	// are none: clients take them out.
	stated sync.Map
}

// typeError says that a value is of another Go type than the informer's objects.
type typeError struct{ is, want reflect.Type }

func (e *typeError) Error() string { return fmt.Sprintf("a %v in an informer of %v", e.is, e.want) }

func newPrototype(example runtime.Object, known *runtime.Scheme, keepsKind bool) *prototype {
	p := &prototype{keepsKind: keepsKind, encoding: wire.JSON, nameless: &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Kind: "Object"}}}
	if example == nil || reflect.TypeOf(example).Kind() != reflect.Pointer {
		return p
	}
	p.goType = reflect.TypeOf(example)
	p.nameless.Kind = p.goType.Elem().Name()
	gvk := example.GetObjectKind().GroupVersionKind()
	switch example.(type) {
	case *unstructured.Unstructured:
		// Each says its own kind, and what says none is refused.
		p.nameless = nil
	case *metav1.PartialObjectMetadata:
		p.encoding = wire.Protobuf
		if !gvk.Empty() {
			p.kind = &wire.Kind{GroupVersionKind: gvk}
		}
	default:
		p.nameless.New = p.empty
		if _, kind, builtin := kube.ResourceOf(example); builtin {
			// Other types may well have a method to write protobuf that is not
			// their own, but that of a type embedded in them.
			p.kind, p.encoding = kind, wire.Protobuf
		} else if gvk = kindOfType(example, gvk, known); !gvk.Empty() {
			p.kind = &wire.Kind{GroupVersionKind: gvk, New: p.empty}
		}
	}
	return p
}

// kindOfType is what an example of a Go type says it is, or else what the scheme
// says, if that is one thing.
func kindOfType(example runtime.Object, own schema.GroupVersionKind, known *runtime.Scheme) schema.GroupVersionKind {
	if known == nil {
		known = scheme.Scheme
	}
	if kinds, _, err := known.ObjectKinds(example); own.Empty() && err == nil && len(kinds) == 1 {
		return kinds[0]
	}
	return own
}

// String is the Go type or, if that says little, the kind.
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

// reads says whether objects in an encoding can be decoded.
func (p *prototype) reads(e wire.Encoding) bool {
	switch {
	case p.goType == nil:
		return false // nothing says what they would be decoded into
	case p.goType == reflect.TypeFor[*metav1.PartialObjectMetadata]():
		return true
	default:
		return e == wire.JSON || p.encoding == wire.Protobuf
	}
}

// empty is a new value of the Go type.
func (p *prototype) empty() runtime.Object {
	return reflect.New(p.goType.Elem()).Interface().(runtime.Object)
}

// decode makes a new value of an object.
func (p *prototype) decode(o *wire.Object) (runtime.Object, error) { return p.decodeLike(o, nil, nil) }

// decodeLike is decode beside another state, if there is one.
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

// encode makes an object of a value, of which it keeps nothing.
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

// encodeLike encodes what a transform made of an object.
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

// isTyped reports whether a value is of a Go type that has its kind beside it: clients leave apiVersion and kind empty
// in such values. In all others these two are content.
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

// isStated reports whether an object was made of a typed value that came with its apiVersion and kind.
func (p *prototype) isStated(o *wire.Object) bool {
	kind, ok := p.stated.Load(o.GroupVersionKind())
	return ok && kind == o.Kind()
}

// kindOfAny is what a value is where there was no example, nil if it says that
// itself, and how to encode it.
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

func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
