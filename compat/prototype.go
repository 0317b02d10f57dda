// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"fmt"
	"reflect"

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
}

func newPrototype(example runtime.Object, known *runtime.Scheme) *prototype {
	p := &prototype{encoding: wire.JSON, nameless: &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Kind: "Object"}}}
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
	if o.GroupVersionKind().Version == "" {
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
		return nil, fmt.Errorf("a %v in an informer of %v", t, p.goType)
	}
	if isNil(value) {
		return nil, errNothing
	}
	kind, encoding := p.kind, p.encoding
	if p.goType == nil {
		kind, encoding = kindOfAny(obj)
	} else if kind == nil && obj.GetObjectKind().GroupVersionKind().Empty() {
		kind = p.nameless
	}
	return wire.Encode(value, encoding, kind)
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
	p := newPrototype(value, nil)
	if p.kind != nil {
		return p.kind, wire.JSON
	}
	return p.nameless, wire.JSON
}

func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
