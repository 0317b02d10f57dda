// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

// ClusterAnnotation names the cluster of an object, in responses with objects of several
// clusters.
const ClusterAnnotation = "watershed.dev/cluster"

// Form is how objects are written: everything that their bytes depend on.
type Form struct {
	// Encoding is JSON or Protobuf: YAML is made from JSON.
	Encoding Encoding
	// Partial means that only the metadata is written.
	Partial bool
	// Version is the version of meta.k8s.io of a partial object.
	Version string
	// Cluster is written as an annotation, unless it is "".
	Cluster string
}

// UnsentError means that an object cannot be encoded in the form that a client wants. The
// response that should have contained it fails: a response without it would look as if the
// object had been deleted.
type UnsentError struct {
	// Object is the object, and Err the cause.
	Object *wire.Object
	Err    error
}

func (e *UnsentError) Error() string { return e.Object.String() + " cannot be sent: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnsentError) Unwrap() error { return e.Err }

// Guard calls a function that makes the bytes of an object. An error, and a panic in the
// code of a type, become an [UnsentError].
func Guard(o *wire.Object, encode func() ([]byte, error)) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = &UnsentError{o, err}
		}
	}()
	return encode()
}

// IsCustom reports whether objects of a kind without a Go type carry their kind in lists.
// Custom resources do; the extension kinds of kube-apiserver itself do not.
func IsCustom(kind schema.GroupVersionKind) bool {
	return kind.Group != "apiextensions.k8s.io" && kind.Group != "apiregistration.k8s.io"
}

// TypePrefix returns how the JSON of an object with a Go type begins.
func TypePrefix(kind schema.GroupVersionKind) string {
	return `{"kind":"` + kind.Kind + `","apiVersion":"` + kind.GroupVersion().String() + `",`
}

// PartialKind returns the kind of metadata or, with the suffix List, of a list of it.
func PartialKind(version, suffix string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: "PartialObjectMetadata" + suffix}
}

// Object appends an object: JSON that names its kind, or a bare message.
func (f Form) Object(b []byte, o *wire.Object) ([]byte, error) {
	if f.Cluster != "" {
		o = o.With(wire.Patch{Annotation: ClusterAnnotation, Value: f.Cluster})
	}
	switch {
	case f.Partial && f.Encoding == Protobuf:
		return f.partialMessage(b, o)
	case f.Partial:
		return f.partialJSON(b, o)
	case f.Encoding == Protobuf:
		return o.AppendProtobuf(b)
	default:
		return o.AppendTypedJSON(b)
	}
}

// hides reports whether kube-apiserver leaves out an annotation of a kind when a client
// requests metadata only.
func hides(kind schema.GroupVersionKind) bool {
	return kind.Group == "apps" && kind.Kind == "DaemonSet"
}

// metadata returns the metadata of an object.
func metadata(o *wire.Object) (*metav1.PartialObjectMetadata, error) {
	value, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if err == nil && hides(o.GroupVersionKind()) {
		delete(value.Annotations, appsv1.DeprecatedTemplateGeneration)
	}
	return value, err
}

func (f Form) partialMessage(b []byte, o *wire.Object) ([]byte, error) {
	if o.Encoding() == wire.Protobuf && !hides(o.GroupVersionKind()) {
		return o.AppendMetadata(b), nil
	}
	value, err := metadata(o)
	if err != nil {
		return b, err
	}
	raw, err := value.Marshal()
	return append(b, raw...), err
}

func (f Form) partialJSON(b []byte, o *wire.Object) ([]byte, error) {
	b = append(b, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	b = append(append(b, f.Version...), `","metadata":`...)
	if o.Encoding() == wire.JSON && !hides(o.GroupVersionKind()) {
		return append(o.AppendMetadata(b), '}'), nil
	}
	value, err := metadata(o)
	if err != nil {
		return b, err
	}
	raw, err := json.Marshal(&value.ObjectMeta)
	return append(append(b, raw...), '}'), err
}

// Item appends an object as an item of a list.
func (f Form) Item(b []byte, o *wire.Object) ([]byte, error) {
	kind := o.GroupVersionKind()
	switch {
	case f.Encoding == Protobuf:
		at := len(b)
		b, err := f.Object(b, o)
		if err != nil {
			return b, err
		}
		return prefixed(b, at, 2), nil
	case f.Partial:
		return f.Object(b, o)
	case o.Encoding() == wire.JSON && IsCustom(kind) && o.Kind().New == nil:
		return f.Object(b, o)
	}
	if f.Cluster != "" {
		o = o.With(wire.Patch{Annotation: ClusterAnnotation, Value: f.Cluster})
	}
	if o.Encoding() == wire.JSON {
		return o.AppendUntyped(b), nil
	}
	return o.AppendJSON(b) // without its kind: the list names the kind of all items
}

// Event appends an event of a watch.
func (f Form) Event(b []byte, t stream.EventType, o *wire.Object) ([]byte, error) {
	if f.Encoding == JSON {
		b = append(append(append(b, `{"type":"`...), t.String()...), `","object":`...)
		b, err := f.Object(b, o)
		return append(b, '}', '\n'), err
	}
	raw, err := f.Object(nil, o)
	if err != nil {
		return b, err
	}
	kind := o.GroupVersionKind()
	if f.Partial {
		kind = PartialKind(f.Version, "")
	}
	return ProtobufEvent(b, t, kind, raw), nil
}
