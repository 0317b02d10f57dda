// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream_test

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

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

func smallList(tb testing.TB, e wire.Encoding) []byte {
	tb.Helper()
	list := corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "4711", Continue: "c"},
		Items:    []corev1.Pod{*wiretest.SmallPod(1), {}, *wiretest.SmallPod(2)},
	}
	return wiretest.Encode(tb, e, corev1.SchemeGroupVersion, &list)
}

// sameList compares a list that was read to its end with apimachinery's: every item is an
// object, or was reported.
func sameList(t *testing.T, body []byte, e wire.Encoding, want *metav1.PartialObjectMetadataList, decodes bool) {
	t.Helper()
	l := stream.NewListReader(bytes.NewReader(body), e, wiretest.PodKind)
	objects, failed, err := readList(l)
	for _, o := range objects {
		wiretest.UseObject(o)
	}
	if err != io.EOF || !decodes { //nolint:errorlint // must be bare
		return
	}
	if got := len(objects) + len(failed); got != len(want.Items) {
		t.Fatalf("%d items, want %d", got, len(want.Items))
	}
	wiretest.WantEqual(t, "resourceVersion", l.Meta().ResourceVersion, want.ResourceVersion)
	wiretest.WantEqual(t, "continue", l.Meta().Continue, want.Continue)
	var remaining int64
	if want.RemainingItemCount != nil {
		remaining = *want.RemainingItemCount
	}
	wiretest.WantEqual(t, "remainingItemCount", l.Meta().RemainingItemCount, remaining)
	if len(failed) == 0 {
		for i, o := range objects {
			wiretest.SameIdentity(t, o, &want.Items[i])
		}
	}
}

func FuzzListJSON(f *testing.F) {
	f.Add(smallList(f, wire.JSON))
	f.Add(
		[]byte(
			`{"apiVersion":"v1","items":[{"metadata":{"name":"x"}}, {"metadata":{"name":"y"}}],"kind":"PodList","metadata":{"resourceVersion":"1"}}`,
		),
	)
	f.Add([]byte(`{"items":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var want metav1.PartialObjectMetadataList
		// apimachinery merges members that occur twice.
		decodes := utiljson.Unmarshal(body, &want) == nil &&
			jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true))
		sameList(t, body, wire.JSON, &want, decodes)
		_, _, _ = readList(stream.NewListReader(bytes.NewReader(body), wire.JSON, nil))
	})
}

func FuzzListProtobuf(f *testing.F) {
	f.Add(smallList(f, wire.Protobuf))
	f.Add([]byte("k8s\x00\x12\x00\x0a\x0d\x0a\x02v1\x12\x07PodList"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var want metav1.PartialObjectMetadataList
		var unknown runtime.Unknown
		decodes := unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))) == nil &&
			want.Unmarshal(unknown.Raw) == nil
		sameList(t, body, wire.Protobuf, &want, decodes)
		_, _, _ = readList(stream.NewListReader(bytes.NewReader(body), wire.Protobuf, nil))
	})
}

func smallWatch(tb testing.TB, e wire.Encoding) []byte {
	tb.Helper()
	return wiretest.EncodeWatch(tb, e, corev1.SchemeGroupVersion, []watch.Event{
		{Type: watch.Added, Object: wiretest.SmallPod(1)},
		{
			Type: watch.Bookmark,
			Object: &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: "9",
					Annotations:     map[string]string{"k8s.io/initial-events-end": "true"},
				},
			},
		},
		{Type: watch.Deleted, Object: wiretest.SmallPod(2)},
		{Type: watch.Error, Object: &metav1.Status{Code: 410}},
	})
}

// sameEvent compares an event with a frame that apimachinery has decoded.
func sameEvent(t *testing.T, ev stream.Event, what string, want *metav1.PartialObjectMetadata) {
	t.Helper()
	wiretest.WantEqual(t, "type", ev.Type.String(), what)
	switch ev.Type {
	case stream.Error:
	case stream.Bookmark:
		wiretest.WantEqual(t, "version", ev.Version, want.ResourceVersion)
		wiretest.WantEqual(t, "initial end", ev.InitialEnd, want.Annotations["k8s.io/initial-events-end"] == "true")
	default:
		wiretest.WantEqual(t, "version", ev.Version, want.ResourceVersion)
		wiretest.SameIdentity(t, ev.Object, want)
		wiretest.UseObject(ev.Object)
	}
}

func FuzzWatchJSON(f *testing.F) {
	f.Add(smallWatch(f, wire.JSON))
	f.Add(
		[]byte(
			`{"object":{"kind":"X","apiVersion":"v1","metadata":{"name":"x"}},"type":"ADDED"} {"type":"BOOKMARK","object":null}`,
		),
	)
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = readWatch(stream.NewWatchReader(bytes.NewReader(body), wire.JSON, nil))
		w := stream.NewWatchReader(bytes.NewReader(body), wire.JSON, wiretest.PodKind)
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
		_, _, _ = readWatch(stream.NewWatchReader(bytes.NewReader(body), wire.Protobuf, nil))
		w := stream.NewWatchReader(bytes.NewReader(body), wire.Protobuf, wiretest.PodKind)
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
			if want.Unmarshal(frame) == nil &&
				unknown.Unmarshal(bytes.TrimPrefix(want.Object.Raw, []byte("k8s\x00"))) == nil &&
				object.Unmarshal(unknown.Raw) == nil {
				sameEvent(t, ev, want.Type, &object)
			}
		}
	})
}
