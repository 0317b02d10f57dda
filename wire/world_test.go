// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/randfill"

	"github.com/watershed-project/watershed/wire"
)

// codecs write as kube-apiserver does: lists are encoded as streams.
var codecs = serializer.NewCodecFactory(scheme.Scheme,
	serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())

var encodings = []wire.Encoding{wire.JSON, wire.Protobuf}

// metaCodecs write objects of which only the metadata was asked for.
var metaCodecs = func() serializer.CodecFactory {
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

func encode(tb testing.TB, e wire.Encoding, gv schema.GroupVersion, o runtime.Object) []byte {
	tb.Helper()
	return encodeWith(tb, codecs, e, gv, o)
}

func encodeWith(tb testing.TB, codecs serializer.CodecFactory, e wire.Encoding, gv schema.GroupVersion, o runtime.Object) []byte {
	tb.Helper()
	b, err := runtime.Encode(codecs.EncoderForVersion(info(codecs, e).Serializer, gv), o)
	must(tb, err)
	return b
}

// bare is the message in a protobuf body, JSON without its line end.
func bare(tb testing.TB, e wire.Encoding, body []byte) []byte {
	tb.Helper()
	if e == wire.JSON {
		return bytes.TrimSpace(body)
	}
	var unknown runtime.Unknown
	must(tb, unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))))
	return unknown.Raw
}

func encodeWatch(tb testing.TB, e wire.Encoding, gv schema.GroupVersion, events []watch.Event) []byte {
	tb.Helper()
	var b bytes.Buffer
	i := info(codecs, e)
	outer := streaming.NewEncoder(i.StreamSerializer.NewFrameWriter(&b), codecs.EncoderForVersion(i.StreamSerializer.Serializer, gv))
	w := restwatch.NewEncoder(outer, codecs.EncoderForVersion(i.Serializer, gv))
	for _, ev := range events {
		must(tb, w.Encode(&ev))
	}
	return b.Bytes()
}

// kindOf knows the Go type, as a caller with a scheme does.
func kindOf(gvk schema.GroupVersionKind) *wire.Kind {
	return &wire.Kind{GroupVersionKind: gvk, New: func() runtime.Object {
		o, err := scheme.Scheme.New(gvk)
		if err != nil {
			panic(err)
		}
		return o
	}}
}

// objectKinds are all kinds of client-go's scheme that have metadata.
func objectKinds(tb testing.TB) []schema.GroupVersionKind {
	tb.Helper()
	var all []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		o, err := scheme.Scheme.New(gvk)
		must(tb, err)
		if _, ok := o.(metav1.Object); ok && gvk.Version != runtime.APIVersionInternal {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	if len(all) < 100 {
		tb.Fatalf("the scheme has %d kinds, that cannot be all", len(all))
	}
	if raceEnabled {
		// There is one goroutine, and nothing for the race detector to find.
		return all[:25]
	}
	return all
}

// newSeed prints the seed, so that a failure can be seen again.
func newSeed(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := time.Now().UnixNano()
	tb.Logf("seed %d", seed)
	return rand.New(rand.NewSource(seed))
}

func newFiller(r *rand.Rand) *randfill.Filler {
	more := func(serializer.CodecFactory) []any {
		return []any{
			func(v *intstr.IntOrString, c randfill.Continue) {
				if c.Bool() {
					*v = intstr.FromString(c.String(0))
				} else {
					*v = intstr.FromInt32(c.Int31())
				}
			},
			func(v *metav1.FieldsV1, _ randfill.Continue) {
				v.SetRawString(`{"f:metadata":{"f:labels":{".":{},"f:a\"}]{[":{}}}}`)
			},
			func(v *metav1.ManagedFieldsEntry, c randfill.Continue) { c.FillNoCustom(v) },
		}
	}
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, more)
	return fuzzer.FuzzerFor(funcs, rand.NewSource(r.Int63()), codecs).NilChance(.3).NumElements(0, 2)
}

// oddNames need escapes in JSON, or look as if they were something else.
var oddNames = []string{
	"web-0", "a", "kube-root-ca.crt", "system:node:x", `with "quotes"`, `back\slash\`, "höhe", "<&>", "line\nend",
	"metadata", "}", "{\"name\":\"x\"", "\u2028", "日本", strings.Repeat("long-", 50),
}

func fill(r *rand.Rand, f *randfill.Filler, gvk schema.GroupVersionKind) runtime.Object {
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	f.Fill(o)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	m := o.(metav1.Object)
	m.SetName(oddNames[r.Intn(len(oddNames))])
	m.SetNamespace("")
	if r.Intn(2) == 0 {
		m.SetNamespace(oddNames[r.Intn(len(oddNames))])
	}
	switch r.Intn(10) {
	case 0:
		m.SetResourceVersion("")
	case 1:
		m.SetResourceVersion("0" + strconv.Itoa(r.Int()))
	case 2:
		m.SetResourceVersion("v-" + strconv.Itoa(r.Int()))
	}
	return o
}

// newList makes a list of the kind, if there is one.
func newList(tb testing.TB, gvk schema.GroupVersionKind, items []runtime.Object) (runtime.Object, bool) {
	tb.Helper()
	list, err := scheme.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, false
	}
	must(tb, meta.SetList(list, items))
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

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wantEqual[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s is %s, want %s", what, show(got), show(want))
	}
}

func show(v any) string {
	s := fmt.Sprintf("%#v", v)
	return s[:min(len(s), 2000)]
}
