// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wiretest

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/wire"
)

// Codecs encode as kube-apiserver does: lists are encoded as streams.
var Codecs = serializer.NewCodecFactory(scheme.Scheme,
	serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())

// Encodings are the encodings to test.
var Encodings = []wire.Encoding{wire.JSON, wire.Protobuf}

// MetaCodecs encode the objects of metadata-only requests.
var MetaCodecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(s); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(s)
}()

func info(codecs serializer.CodecFactory, e wire.Encoding) runtime.SerializerInfo {
	mediaType := runtime.ContentTypeJSON
	if e == wire.Protobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	i, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		panic("no serializer for " + mediaType)
	}
	return i
}

// Encode returns a value as the API server sends it on its own.
func Encode(tb testing.TB, e wire.Encoding, gv schema.GroupVersion, o runtime.Object) []byte {
	tb.Helper()
	return EncodeWith(tb, Codecs, e, gv, o)
}

// EncodeWith is Encode with other codecs.
func EncodeWith(
	tb testing.TB, codecs serializer.CodecFactory, e wire.Encoding, gv schema.GroupVersion, o runtime.Object,
) []byte {
	tb.Helper()
	b, err := runtime.Encode(codecs.EncoderForVersion(info(codecs, e).Serializer, gv), o)
	Must(tb, err)
	return b
}

// Bare returns the message in a protobuf body, or JSON without its newline.
func Bare(tb testing.TB, e wire.Encoding, body []byte) []byte {
	tb.Helper()
	if e == wire.JSON {
		return bytes.TrimSpace(body)
	}
	var unknown runtime.Unknown
	Must(tb, unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))))
	return unknown.Raw
}

// EncodeWatch returns events as the API server sends them in a watch.
func EncodeWatch(tb testing.TB, e wire.Encoding, gv schema.GroupVersion, events []watch.Event) []byte {
	tb.Helper()
	var b bytes.Buffer
	i := info(Codecs, e)
	outer := streaming.NewEncoder(i.StreamSerializer.NewFrameWriter(&b),
		Codecs.EncoderForVersion(i.StreamSerializer.Serializer, gv))
	w := restwatch.NewEncoder(outer, Codecs.EncoderForVersion(i.Serializer, gv))
	for _, ev := range events {
		Must(tb, w.Encode(&ev))
	}
	return b.Bytes()
}

// KindOf returns a Kind with its Go type, as a caller with a scheme has it.
func KindOf(gvk schema.GroupVersionKind) *wire.Kind {
	return &wire.Kind{GroupVersionKind: gvk, New: func() runtime.Object {
		o, err := scheme.Scheme.New(gvk)
		if err != nil {
			panic(err)
		}
		return o
	}}
}

// ObjectKinds returns the kinds for tests of all kinds.
func ObjectKinds(tb testing.TB) []schema.GroupVersionKind {
	tb.Helper()
	all := specimen.Kinds(tb)
	if Race {
		// There is only one goroutine, so the race detector cannot find anything.
		return all[:25]
	}
	return all
}

// NewList makes a list of the kind, if the kind has a list type.
func NewList(tb testing.TB, gvk schema.GroupVersionKind, items []runtime.Object) (runtime.Object, bool) {
	tb.Helper()
	list, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, false
	}
	Must(tb, meta.SetList(list, items))
	m := list.(metav1.ListInterface)
	m.SetResourceVersion("4711")
	m.SetContinue("next\"page")
	m.SetRemainingItemCount(new(int64(12)))
	return list, true
}

func key(m metav1.Object) string {
	if m.GetNamespace() == "" {
		return m.GetName()
	}
	return m.GetNamespace() + "/" + m.GetName()
}

func version(m metav1.Object) uint64 {
	v, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil || strconv.FormatUint(v, 10) != m.GetResourceVersion() {
		return 0
	}
	return v
}

// Must ends the test if there is an error.
func Must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// WantEqual reports a difference.
func WantEqual[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s is %s, want %s", what, show(got), show(want))
	}
}

func show(v any) string {
	s := fmt.Sprintf("%#v", v)
	return s[:min(len(s), 2000)]
}
