// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

// clusterAnnotation says which cluster an object of the fleet is in.
const clusterAnnotation = "watershed.dev/cluster"

// form is how objects are written: everything that their bytes depend on.
type form struct {
	// encoding is asJSON or asProtobuf: YAML is made of JSON.
	encoding encoding
	partial  bool
	// version is that of meta.k8s.io of a partial object.
	version string
	// cluster, if it is not "", is told in an annotation.
	cluster string
}

// unsentError is returned for an object that cannot be encoded in the form that a client
// wants. The response that should have contained it fails: a response without it would
// look as if the object had been deleted.
type unsentError struct {
	object *wire.Object
	err    error
}

func (e *unsentError) Error() string { return e.object.String() + " cannot be sent: " + e.err.Error() }

func (e *unsentError) Unwrap() error { return e.err }

// encode returns the bytes of an object. An error, and a panic in the code of a type,
// become an [unsentError].
func encode(o *wire.Object, bytes func() ([]byte, error)) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = &unsentError{o, err}
		}
	}()
	return bytes()
}

// custom reports whether objects of a kind say what they are in a list too: those
// without a Go type in the API server do.
func custom(kind schema.GroupVersionKind) bool {
	return kind.Group != "apiextensions.k8s.io" && kind.Group != "apiregistration.k8s.io"
}

// typePrefix is how the JSON of an object with a Go type begins.
func typePrefix(kind schema.GroupVersionKind) string {
	return `{"kind":"` + kind.Kind + `","apiVersion":"` + kind.GroupVersion().String() + `",`
}

// object appends an object: JSON that says what it is, or a bare message.
func (f form) object(b []byte, o *wire.Object) ([]byte, error) {
	if f.cluster != "" {
		o = o.With(wire.Patch{Annotation: clusterAnnotation, Value: f.cluster})
	}
	switch {
	case f.partial && f.encoding == asProtobuf:
		return f.partialMessage(b, o)
	case f.partial:
		return f.partialJSON(b, o)
	case f.encoding == asProtobuf:
		return o.AppendProtobuf(b)
	case o.Encoding() == wire.JSON:
		return o.Append(b), nil
	default:
		return appendTyped(b, o)
	}
}

// appendTyped appends the JSON of an object in protobuf.
func appendTyped(b []byte, o *wire.Object) ([]byte, error) {
	at := len(b)
	b = append(b, typePrefix(o.GroupVersionKind())...)
	began := len(b)
	b, err := o.AppendJSON(b)
	if err != nil {
		return b[:at], err
	}
	// What it is goes first in the object.
	return append(b[:began], b[began+1:]...), nil
}

// hides reports whether the API server leaves something of a kind's metadata out where
// only that is asked for.
func hides(kind schema.GroupVersionKind) bool {
	return kind.Group == "apps" && kind.Kind == "DaemonSet"
}

// metadata is an object's.
func metadata(o *wire.Object) (*metav1.PartialObjectMetadata, error) {
	value, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if err == nil && hides(o.GroupVersionKind()) {
		delete(value.Annotations, appsv1.DeprecatedTemplateGeneration)
	}
	return value, err
}

func (f form) partialMessage(b []byte, o *wire.Object) ([]byte, error) {
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

func (f form) partialJSON(b []byte, o *wire.Object) ([]byte, error) {
	b = append(b, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/`...)
	b = append(append(b, f.version...), `","metadata":`...)
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

// item appends an object as lists have it.
func (f form) item(b []byte, o *wire.Object) ([]byte, error) {
	kind := o.GroupVersionKind()
	switch {
	case f.encoding == asProtobuf:
		at := len(b)
		b, err := f.object(b, o)
		if err != nil {
			return b, err
		}
		return prefixed(b, at, 2), nil
	case f.partial:
		return f.object(b, o)
	case o.Encoding() == wire.JSON && custom(kind) && o.Kind().New == nil:
		return f.object(b, o)
	case o.Encoding() == wire.JSON:
		if f.cluster != "" {
			o = o.With(wire.Patch{Annotation: clusterAnnotation, Value: f.cluster})
		}
		return o.AppendUntyped(b), nil
	}
	at := len(b)
	b, err := f.object(b, o)
	if err != nil {
		return b, err
	}
	// What all of them are the list says.
	n := len(typePrefix(kind)) - 1
	b[at+n] = '{'
	return append(b[:at], b[at+n:]...), nil
}

// event appends a frame of a watch.
func (f form) event(b []byte, t wire.EventType, o *wire.Object) ([]byte, error) {
	if f.encoding == asJSON {
		b = append(append(append(b, `{"type":"`...), t.String()...), `","object":`...)
		b, err := f.object(b, o)
		return append(b, '}', '\n'), err
	}
	raw, err := f.object(nil, o)
	if err != nil {
		return b, err
	}
	kind := o.GroupVersionKind()
	if f.partial {
		kind = schema.GroupVersionKind{Group: metav1.GroupName, Version: f.version, Kind: "PartialObjectMetadata"}
	}
	return protoEvent(b, t, kind, raw), nil
}

// protoEvent appends a frame of a watch in protobuf: a length, and a WatchEvent
// around an object with its envelope.
func protoEvent(b []byte, t wire.EventType, kind schema.GroupVersionKind, raw []byte) []byte {
	apiVersion, name := kind.ToAPIVersionAndKind()
	enveloped := envelope(nil, apiVersion, name, raw)
	var event []byte
	event = appendField(event, 1, t.String())
	event = append(event, 2<<3|2)
	event = binary.AppendUvarint(event, uint64(1+uvarintLen(len(enveloped))+len(enveloped)))
	event = append(event, 1<<3|2)
	event = binary.AppendUvarint(event, uint64(len(enveloped)))
	event = append(event, enveloped...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(event)))
	return append(b, event...)
}

// magic begins everything that is Kubernetes in protobuf.
const magic = "k8s\x00"

// envelope appends what says what a message is, around it.
func envelope(b []byte, apiVersion, kind string, raw []byte) []byte {
	b = envelopeHead(b, apiVersion, kind, len(raw))
	return envelopeTail(append(b, raw...))
}

// envelopeHead is what comes before a message of so many bytes.
func envelopeHead(b []byte, apiVersion, kind string, n int) []byte {
	b = append(b, magic...)
	typeMeta := appendField(appendField(nil, 1, apiVersion), 2, kind)
	b = appendField(b, 1, string(typeMeta))
	b = append(b, 2<<3|2)
	return binary.AppendUvarint(b, uint64(n))
}

// envelopeTail is what comes after it: no encoding, no media type.
func envelopeTail(b []byte) []byte { return append(b, 3<<3|2, 0, 4<<3|2, 0) }

// appendField appends a field of a message that is a string.
func appendField(b []byte, field byte, value string) []byte {
	b = append(b, field<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// prefixed makes what was appended from at on a field, whose tag and length go before
// it.
func prefixed(b []byte, at int, field byte) []byte {
	n := len(b) - at
	head := 1 + uvarintLen(n)
	b = append(b, make([]byte, head)...)
	copy(b[at+head:], b[at:at+n])
	b[at] = field<<3 | 2
	binary.PutUvarint(b[at+1:], uint64(n))
	return b
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}
