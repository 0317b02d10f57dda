// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// readList reads a list to its end. failed holds the objects that could not be filed.
func readList(l *stream.ListReader) (objects []*wire.Object, failed []*wire.ObjectError, err error) {
	for {
		o, err := l.Next()
		one := (*wire.ObjectError)(nil)
		switch {
		case err == nil:
			objects = append(objects, o)
		case errors.As(err, &one):
			failed = append(failed, one)
		default:
			return objects, failed, err
		}
	}
}

func TestListReader_readsByteByByte(t *testing.T) {
	for _, e := range wiretest.Encodings {
		l := stream.NewListReader(iotest.OneByteReader(bytes.NewReader(wiretest.PodList(t, e, 5))), e, wiretest.PodKind)
		for n := range 5 {
			o, err := l.Next()
			wiretest.Must(t, err)
			if want := wiretest.PodObject(t, e, n); !wire.Same(o, want) {
				t.Errorf("%v: got %v, want %v", e, o, want)
			}
		}
		wantEnd(t, l)
	}
}

func TestListReader_cutOffIsAnError(t *testing.T) {
	for _, e := range wiretest.Encodings {
		var pods corev1.PodList
		for n := range 3 {
			pods.Items = append(pods.Items, *wiretest.SmallPod(n))
		}
		body := wiretest.Encode(t, e, corev1.SchemeGroupVersion, &pods)
		var ends []int // of the items
		for n := range 3 {
			raw := wiretest.Bare(t, e, wiretest.Encode(t, e, corev1.SchemeGroupVersion, wiretest.SmallPod(n)))
			if e == wire.JSON {
				raw = bytes.TrimPrefix(raw, []byte(`{"kind":"Pod","apiVersion":"v1",`))
			}
			ends = append(ends, bytes.Index(body, raw)+len(raw))
		}
		complete := len(body)
		if e == wire.JSON {
			complete = len(bytes.TrimSpace(body))
		}
		for cut := range len(body) {
			for _, r := range []io.Reader{
				bytes.NewReader(body[:cut]), iotest.DataErrReader(bytes.NewReader(body[:cut])),
			} {
				objects, failed, err := readList(stream.NewListReader(r, e, wiretest.PodKind))
				want := 0
				for _, end := range ends {
					if end <= cut {
						want++
					}
				}
				if len(objects) != want || len(failed) != 0 {
					t.Fatalf("%v cut at %d of %d: %d objects, want %d, and %v", e, cut, len(body), len(objects), want,
						failed)
				}
				// After the list, the protobuf envelope has two empty fields. Nothing is
				// missing without them.
				whole := cut >= complete || e == wire.Protobuf && (cut == len(body)-4 || cut == len(body)-2)
				if whole != (err == io.EOF) { //nolint:errorlint // must be bare
					t.Fatalf("%v cut at %d of %d: %v", e, cut, len(body), err)
				} else if !whole && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("%v cut at %d of %d: %v is not an unexpected end", e, cut, len(body), err)
				}
			}
		}
	}
}

func TestListReader_brokenConnectionIsAnError(t *testing.T) {
	broken := errors.New("connection reset")
	for _, e := range wiretest.Encodings {
		body := wiretest.PodList(t, e, 3)
		r := io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(broken))
		l := stream.NewListReader(r, e, wiretest.PodKind)
		objects, _, err := readList(l)
		if len(objects) != 1 || !errors.Is(err, broken) {
			t.Errorf("%v: %d objects and %v", e, len(objects), err)
		}
		if _, again := l.Next(); again != err { //nolint:errorlint // the very same
			t.Errorf("%v: first %v, then %v", e, err, again)
		}
	}
}

func TestListReader_takesMembersInAnyOrder(t *testing.T) {
	const item = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"n","resourceVersion":"7"},"spec":{"size":3}}`
	for _, body := range []string{
		`{"apiVersion":"example.com/v1","items":[` + item +
			`],"kind":"WidgetList","metadata":{"continue":"c","remainingItemCount":3,"resourceVersion":"9"}}`,
		`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9","continue":"c","remainingItemCount":3},"items":[` + item + `]}`,
		"  {\n \"metadata\" : {\"resourceVersion\":\"9\" , " +
			"\"continue\":\"\u0063\",\"other\":[{}],\"remainingItemCount\":3},\"more\":{\"items\":[1]}, \"items\" : [ " + item + "\n ] }\n\n",
	} {
		for _, kind := range []*wire.Kind{
			nil,
			{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}},
		} {
			l := stream.NewListReader(strings.NewReader(body), wire.JSON, kind)
			objects, failed, err := readList(l)
			if len(objects) != 1 || len(failed) != 0 || err != io.EOF { //nolint:errorlint // must be bare
				t.Fatalf("%s: %v, %v, %v", body, objects, failed, err)
			}
			wiretest.WantEqual(t, "object", objects[0].String(), "Widget n/w@7")
			wiretest.WantEqual(t, "bytes", string(objects[0].Bytes()), item)
			wiretest.WantEqual(t, "Meta", l.Meta(), stream.ListMeta{
				ResourceVersion: "9", Continue: "c", RemainingItemCount: 3,
			})
		}
	}
}

func TestListReader_refusesWhatIsNoList(t *testing.T) {
	status := &metav1.Status{Status: "Failure", Message: "no"}
	v1 := schema.GroupVersion{Version: "v1"}
	for name, c := range map[string]struct {
		e    wire.Encoding
		body string
	}{
		"Status":           {wire.JSON, string(wiretest.Encode(t, wire.JSON, v1, status))},
		"no items":         {wire.JSON, `{"kind":"PodList","apiVersion":"v1","metadata":{}}`},
		"items no array":   {wire.JSON, `{"items":{}}`},
		"items twice":      {wire.JSON, `{"items":[],"items":[]}`},
		"array":            {wire.JSON, `[]`},
		"null":             {wire.JSON, `null`},
		"more after it":    {wire.JSON, `{"items":[]}{"items":[]}`},
		"text after it":    {wire.JSON, `{"items":[]} "kind" "x"`},
		"bad metadata":     {wire.JSON, `{"items":[],"metadata":{"resourceVersion":5}}`},
		"bad kind":         {wire.JSON, `{"items":[],"kind":{}}`},
		"late kind":        {wire.JSON, `{"items":[{"metadata":{"name":"x"}}],"kind":"PodList","apiVersion":"v1"}`},
		"Status, protobuf": {wire.Protobuf, string(wiretest.Encode(t, wire.Protobuf, v1, status))},
		"no magic":         {wire.Protobuf, string(wiretest.PodBytes(t, wire.Protobuf, 1))},
		"JSON":             {wire.Protobuf, string(wiretest.PodList(t, wire.JSON, 1))},
		"protobuf":         {wire.JSON, string(wiretest.PodList(t, wire.Protobuf, 1))},
		"two bodies":       {wire.Protobuf, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x00\x12\x00"},
		"late TypeMeta":    {wire.Protobuf, "k8s\x00\x12\x00\x0a\x0d\x0a\x02v1\x12\x07PodList"},
		"no body":          {wire.Protobuf, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList"},
		"item too long": {
			wire.Protobuf, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x03\x12\x05\x0a\x03\x0a\x01x",
		},
		"too large": {
			wire.Protobuf, "k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\xff\xff\xff\xff\x7f\x12\xff\xff\xff\xff\x0f",
		},
		"neither":         {0, "{}"},
		"empty":           {wire.JSON, ""},
		"empty, protobuf": {wire.Protobuf, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []*wire.Kind{nil, wiretest.PodKind} {
				if kind != nil && strings.HasPrefix(name, "late") {
					continue // a given kind is known from the start
				}
				objects, failed, err := readList(stream.NewListReader(strings.NewReader(c.body), c.e, kind))
				if len(objects) != 0 || len(failed) != 0 || err == nil ||
					err == io.EOF { //nolint:errorlint // must be bare
					t.Errorf("got %v, %v, %v", objects, failed, err)
				}
			}
		})
	}
}

func TestListReader_emptyListIsComplete(t *testing.T) {
	for _, e := range wiretest.Encodings {
		for _, list := range []apiruntime.Object{&corev1.PodList{}, &corev1.PodList{Items: []corev1.Pod{}}} {
			objects, failed, err := readList(
				stream.NewListReader(bytes.NewReader(wiretest.Encode(t, e, corev1.SchemeGroupVersion, list)), e, nil),
			)
			if len(objects) != 0 || len(failed) != 0 || err != io.EOF { //nolint:errorlint // must be bare
				t.Errorf("%v: %v, %v, %v", e, objects, failed, err)
			}
		}
	}
}

func TestListReader_oneBadObjectIsNotTheEnd(t *testing.T) {
	bad := []string{
		`{"metadata":{}}`, `{}`, `null`, `5`, `[]`, `{"metadata":null}`, `{"metadata":{"name":5}}`, `{"metadata":[]}`,
		`{"metadata":{"name":"a/b"}}`, `{"metadata":{"name":"a","namespace":"b/c"}}`,
		`{"metadata":{"name":"a","name":"b"}}`,
		`{"metadata":{"name":"a"},"metadata":{}}`, `{"kind":"Pod","metadata":{"name":"a"}}`,
		`{"apiVersion":"a/b/c","kind":"Pod","metadata":{"name":"a"}}`,
		`{"kind":"","apiVersion":"v1","metadata":{"name":"a"}}`,
		`{"metadata":{"name":"a","labels":{},"labels":{}}}`, `{"apiVersion":"g/","kind":"Pod","metadata":{"name":"a"}}`,
	}
	body := `{"kind":"PodList","apiVersion":"v1","items":[` + strings.Join(bad, ",") + `,{"metadata":{"name":"good"}}]}`
	objects, failed, err := readList(stream.NewListReader(strings.NewReader(body), wire.JSON, nil))
	if len(objects) != 1 || objects[0].Key() != "good" || err != io.EOF { //nolint:errorlint // must be bare
		t.Errorf("objects %v, %v", objects, err)
	}
	wiretest.WantEqual(t, "failed", len(failed), len(bad))

	pods := corev1.PodList{
		Items: []corev1.Pod{{}, *wiretest.NewPod(1), {ObjectMeta: metav1.ObjectMeta{Name: "a/b", Namespace: "n"}}},
	}
	objects, failed, err = readList(
		stream.NewListReader(bytes.NewReader(wiretest.Encode(t, wire.Protobuf, corev1.SchemeGroupVersion, &pods)),
			wire.Protobuf, wiretest.PodKind),
	)
	if len(objects) != 1 || len(failed) != 2 || err != io.EOF { //nolint:errorlint // must be bare
		t.Fatalf("objects %v, failed %v, %v", objects, failed, err)
	}
	wiretest.WantEqual(t, "error", failed[1].Error(), "wire: Pod n/a/b: namespace or name contains a slash")
}

func TestListReader_objectsShareTheirKind(t *testing.T) {
	for _, e := range wiretest.Encodings {
		objects, _, _ := readList(stream.NewListReader(bytes.NewReader(wiretest.PodList(t, e, 3)), e, nil))
		for _, o := range objects {
			wiretest.WantEqual(t, "kind", o.GroupVersionKind(), wiretest.PodKind.GroupVersionKind)
			wiretest.WantEqual(t, "Kind", o.Kind(), objects[0].Kind())
		}
	}
	mixed := `{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}},{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"b"}},{"metadata":{"name":"c"}}]}`
	objects, failed, err := readList(stream.NewListReader(strings.NewReader(mixed), wire.JSON, nil))
	if got := fmt.Sprint(objects, len(failed), err); got != "[Pod a@0 Deployment b@0] 1 EOF" {
		t.Errorf("a mixed list is %s", got)
	}
	wiretest.WantEqual(t, "group", objects[1].GroupVersionKind().Group, "apps")
}

func TestListReader_givenKindCounts(t *testing.T) {
	partial := &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: wiretest.NewPod(1).ObjectMeta,
	}}}
	for _, e := range wiretest.Encodings {
		objects, _, _ := readList(
			stream.NewListReader(bytes.NewReader(
				wiretest.EncodeWith(t, wiretest.MetaCodecs, e, metav1.SchemeGroupVersion, partial),
			), e, wiretest.PodKind),
		)
		if len(objects) != 1 {
			t.Fatal(objects)
		}
		wiretest.WantEqual(t, "kind", objects[0].GroupVersionKind(), wiretest.PodKind.GroupVersionKind)
		m, err := wire.Decode[*metav1.PartialObjectMetadata](objects[0])
		wiretest.Must(t, err)
		wiretest.WantEqual(t, "decoded kind", m.GroupVersionKind(), wiretest.PodKind.GroupVersionKind)
		wiretest.WantEqual(t, "name", m.Name, wiretest.NewPod(1).Name)
	}
}

func TestListReader_lyingLengthCostsNothing(t *testing.T) {
	body := []byte("k8s\x00\x0a\x0d\x0a\x02v1\x12\x07PodList\x12")
	body = binary.AppendUvarint(body, 1<<40)
	body = append(body, 0x12)
	body = binary.AppendUvarint(body, 30<<20)
	body = append(body, 1, 2, 3)
	if got := allocatedBy(func() {
		if _, _, err := readList(stream.NewListReader(bytes.NewReader(body), wire.Protobuf,
			wiretest.PodKind)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	}); got > 4<<20 {
		t.Errorf("a length without bytes took %d bytes", got)
	}
}

func TestListReader_refusesEndlessObjects(t *testing.T) {
	if testing.Short() || wiretest.Race {
		t.Skip("reads 32 MiB")
	}
	endless := io.MultiReader(strings.NewReader(`{"items":[{"metadata":{"name":"`), iotest.TimeoutReader(forever{}))
	_, _, err := readList(stream.NewListReader(endless, wire.JSON, wiretest.PodKind))
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	_, _, err = readList(stream.NewListReader(
		io.MultiReader(strings.NewReader(`{"items":[{"metadata":{"name":"`), forever{}), wire.JSON, wiretest.PodKind,
	))
	if err == nil || !strings.Contains(err.Error(), "larger than 32 MiB") {
		t.Error(err)
	}
	_, _, err = readList(stream.NewListReader(nothing{}, wire.JSON, wiretest.PodKind))
	if !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

func TestListReader_holdsOneObjectAtATime(t *testing.T) {
	for _, e := range wiretest.Encodings {
		body := wiretest.PodList(t, e, 2000)
		l := stream.NewListReader(bytes.NewReader(body), e, wiretest.PodKind)
		most := uint64(0)
		before := wiretest.Heap()
		for n := 0; ; n++ {
			if _, err := l.Next(); err != nil {
				break
			}
			if n%500 == 0 {
				most = max(most, max(wiretest.Heap(), before)-before)
			}
		}
		if most > 1<<20 {
			t.Errorf("%v: reading %d bytes held %d", e, len(body), most)
		}
	}
}

type forever struct{}

func (forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
