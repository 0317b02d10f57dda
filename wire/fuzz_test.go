// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/wire"
)

// sameIdentity compares an object with the one that apimachinery has decoded completely.
func sameIdentity(t *testing.T, o *wire.Object, want metav1.Object) {
	t.Helper()
	wantEqual(t, "key", o.Key(), key(want))
	wantEqual(t, "name", o.Name(), want.GetName())
	wantEqual(t, "namespace", o.Namespace(), want.GetNamespace())
	wantEqual(t, "version", o.Version(), version(want))
	wantEqual(t, "resourceVersion", o.ResourceVersion(), want.GetResourceVersion())
}

func FuzzJSONObject(f *testing.F) {
	f.Add(podBytes(f, wire.JSON, 1))
	f.Add([]byte(`{ "metadata":{"n\u0061me":"x","namespace":null,"labels":{"a":"b\"}"},"ownerReferences":[{"controller":true}]}}`))
	f.Add([]byte(`{"metadata":{"name":"x"},"metadata":{"name":"y"}}`))
	f.Add([]byte(`{"kind":null,"apiVersion":"v1","metadata":{"name":"\ud800","creationTimestamp":null,"generation":4}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := wire.NewObject(bytes.Clone(raw), wire.JSON, podKind)
		var want metav1.PartialObjectMetadata
		decodes := utiljson.Unmarshal(raw, &want) == nil
		if err != nil {
			// Strict JSON with a valid name that apimachinery can read must not be
			// rejected.
			if decodes && jsontext.Value(raw).IsValid() && want.Name != "" && !hasSlash(&want) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		useObject(o)
		var typed metav1.TypeMeta
		if !jsontext.Value(o.Bytes()).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Errorf("the bytes are no JSON: %q", o.Bytes())
		} else if utiljson.Unmarshal(o.Bytes(), &typed) == nil && decodes && want.Kind == "" && want.APIVersion == "" && !bytes.Contains(raw, []byte("kind")) && !bytes.Contains(raw, []byte("apiVersion")) && !bytes.Contains(raw, []byte{'\\'}) {
			wantEqual(t, "kind", typed, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"})
		}
		if !decodes {
			return
		}
		sameIdentity(t, o, &want)
		if jsontext.Value(raw).IsValid(jsontext.AllowInvalidUTF8(true)) {
			checkMeta(t, o, &want)
			checkPartial(t, o, podKind.GroupVersionKind)
		}
	})
}

func hasSlash(m metav1.Object) bool {
	return bytes.ContainsRune([]byte(m.GetName()+m.GetNamespace()), '/')
}

func FuzzProtobufObject(f *testing.F) {
	f.Add(podBytes(f, wire.Protobuf, 1))
	small, _ := smallPod(1).Marshal()
	f.Add(small)
	other, _ := smallPod(2).Marshal()
	f.Add(append(small, other...)) // one object: the last value counts
	f.Add([]byte("\x0a\x03\x0a\x01x\x13\x08\x01\x14\x19\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := wire.NewObject(bytes.Clone(raw), wire.Protobuf, podKind)
		var want metav1.PartialObjectMetadata
		decodes := want.Unmarshal(raw) == nil
		if err != nil {
			if decodes && want.Name != "" && !hasSlash(&want) {
				t.Errorf("refused: %v", err)
			}
			return
		}
		useObject(o)
		if decodes {
			sameIdentity(t, o, &want)
			if wire.WellFormedLabels(o) {
				// The generated code does not check wire types within map entries, nor
				// their ends. We do.
				checkMeta(t, o, &want)
			}
			checkPartial(t, o, podKind.GroupVersionKind)
		}
	})
}

func smallList(tb testing.TB, e wire.Encoding) []byte {
	tb.Helper()
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "c"}, Items: []corev1.Pod{*smallPod(1), {}, *smallPod(2)}}
	return encode(tb, e, corev1.SchemeGroupVersion, &list)
}

// sameList compares a list that was read to its end with apimachinery's: every item is an
// object, or was reported.
func sameList(t *testing.T, body []byte, e wire.Encoding, want *metav1.PartialObjectMetadataList, decodes bool) {
	t.Helper()
	l := wire.NewListReader(bytes.NewReader(body), e, podKind)
	objects, failed, err := readList(l)
	for _, o := range objects {
		useObject(o)
	}
	if err != io.EOF || !decodes { //nolint:errorlint // must be bare
		return
	}
	if got := len(objects) + len(failed); got != len(want.Items) {
		t.Fatalf("%d items, want %d", got, len(want.Items))
	}
	wantEqual(t, "resourceVersion", l.Meta().ResourceVersion, want.ResourceVersion)
	wantEqual(t, "continue", l.Meta().Continue, want.Continue)
	var remaining int64
	if want.RemainingItemCount != nil {
		remaining = *want.RemainingItemCount
	}
	wantEqual(t, "remainingItemCount", l.Meta().RemainingItemCount, remaining)
	if len(failed) == 0 {
		for i, o := range objects {
			sameIdentity(t, o, &want.Items[i])
		}
	}
}

func FuzzListJSON(f *testing.F) {
	f.Add(smallList(f, wire.JSON))
	f.Add([]byte(`{"apiVersion":"v1","items":[{"metadata":{"name":"x"}}, {"metadata":{"name":"y"}}],"kind":"PodList","metadata":{"resourceVersion":"1"}}`))
	f.Add([]byte(`{"items":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var want metav1.PartialObjectMetadataList
		// apimachinery merges members that occur twice.
		decodes := utiljson.Unmarshal(body, &want) == nil && jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true))
		sameList(t, body, wire.JSON, &want, decodes)
		_, _, _ = readList(wire.NewListReader(bytes.NewReader(body), wire.JSON, nil))
	})
}

func FuzzListProtobuf(f *testing.F) {
	f.Add(smallList(f, wire.Protobuf))
	f.Add([]byte("k8s\x00\x12\x00\x0a\x0d\x0a\x02v1\x12\x07PodList"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var want metav1.PartialObjectMetadataList
		var unknown runtime.Unknown
		decodes := unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))) == nil && want.Unmarshal(unknown.Raw) == nil
		sameList(t, body, wire.Protobuf, &want, decodes)
		_, _, _ = readList(wire.NewListReader(bytes.NewReader(body), wire.Protobuf, nil))
	})
}

func smallWatch(tb testing.TB, e wire.Encoding) []byte {
	tb.Helper()
	return encodeWatch(tb, e, corev1.SchemeGroupVersion, []watch.Event{
		{Type: watch.Added, Object: smallPod(1)},
		{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9", Annotations: map[string]string{"k8s.io/initial-events-end": "true"}}}},
		{Type: watch.Deleted, Object: smallPod(2)},
		{Type: watch.Error, Object: &metav1.Status{Code: 410}},
	})
}

// sameEvent compares an event with a frame that apimachinery has decoded.
func sameEvent(t *testing.T, ev wire.Event, what string, want *metav1.PartialObjectMetadata) {
	t.Helper()
	wantEqual(t, "type", ev.Type.String(), what)
	switch ev.Type {
	case wire.Error:
	case wire.Bookmark:
		wantEqual(t, "version", ev.Version, want.ResourceVersion)
		wantEqual(t, "initial end", ev.InitialEnd, want.Annotations["k8s.io/initial-events-end"] == "true")
	default:
		wantEqual(t, "version", ev.Version, want.ResourceVersion)
		sameIdentity(t, ev.Object, want)
		useObject(ev.Object)
	}
}

func FuzzWatchJSON(f *testing.F) {
	f.Add(smallWatch(f, wire.JSON))
	f.Add([]byte(`{"object":{"kind":"X","apiVersion":"v1","metadata":{"name":"x"}},"type":"ADDED"} {"type":"BOOKMARK","object":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = readWatch(wire.NewWatchReader(bytes.NewReader(body), wire.JSON, nil))
		w := wire.NewWatchReader(bytes.NewReader(body), wire.JSON, podKind)
		strict := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowInvalidUTF8(true))
		for {
			ev, err := w.Next()
			value, jsonErr := strict.ReadValue()
			if err != nil || jsonErr != nil {
				return
			}
			var want metav1.WatchEvent
			var object metav1.PartialObjectMetadata
			if utiljson.Unmarshal(value, &want) == nil && utiljson.Unmarshal(want.Object.Raw, &object) == nil {
				sameEvent(t, ev, want.Type, &object)
			}
		}
	})
}

func FuzzWatchProtobuf(f *testing.F) {
	f.Add(smallWatch(f, wire.Protobuf))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = readWatch(wire.NewWatchReader(bytes.NewReader(body), wire.Protobuf, nil))
		w := wire.NewWatchReader(bytes.NewReader(body), wire.Protobuf, podKind)
		for {
			ev, err := w.Next()
			if err != nil {
				return
			}
			n := int(binary.BigEndian.Uint32(body)) // the length exists, or there would be no event
			frame := body[4 : 4+n]
			body = body[4+n:]
			var want metav1.WatchEvent
			var unknown runtime.Unknown
			var object metav1.PartialObjectMetadata
			if want.Unmarshal(frame) == nil && unknown.Unmarshal(bytes.TrimPrefix(want.Object.Raw, []byte("k8s\x00"))) == nil && object.Unmarshal(unknown.Raw) == nil {
				sameEvent(t, ev, want.Type, &object)
			}
		}
	})
}
