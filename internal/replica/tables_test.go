// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	printing "github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/wire"
)

// tableWriter records a response and how many objects had been read at its first byte.
type tableWriter struct {
	httptest.ResponseRecorder
	read  *int
	begun int
}

func (w *tableWriter) Write(b []byte) (int, error) {
	if w.Body.Len() == 0 {
		w.begun = *w.read
	}
	return w.ResponseRecorder.Write(b)
}

// writeTestTable writes a table of pods with their metadata.
func writeTestTable(t *testing.T, pods []*wire.Object, m media, encoding string) *tableWriter {
	t.Helper()
	s := &Server{opts: (&Options{Logger: slog.New(slog.DiscardHandler)}).withDefaults()}
	s.blocks = newBlocks(s.opts.Blocks, s.opts.Logger)
	s.values = &wire.Sharer[runtime.Object]{Make: decoded}
	printer, ok := printing.For(corev1.SchemeGroupVersion.WithKind("Pod"))
	if !ok {
		t.Fatal("there is no printer of pods")
	}
	read := 0
	l := &listing{meta: metav1.ListMeta{ResourceVersion: "7"}, matcher: &matcher{server: s}, parts: []listPart{{
		objects: func(yield func(string, *wire.Object) bool) {
			for _, o := range pods {
				if read++; !yield(o.Key(), o) {
					return
				}
			}
		},
	}}}
	w := &tableWriter{ResponseRecorder: *httptest.NewRecorder(), read: &read}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("Accept-Encoding", encoding)
	q := &request{server: s, w: w, r: r, media: m}
	if err := q.writeTable(l, printer); err != nil {
		t.Fatal(err)
	}
	return w
}

func manyPods(t *testing.T, n int) (pods []*wire.Object) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		pods = append(pods, noisyPod(t, random, fmt.Sprintf("web-%05d", i), 1+i))
	}
	return pods
}

// Tables for people are written while the objects are read, and are the same as if the
// whole had been converted at once.
func TestTable_isWrittenRowByRow(t *testing.T) {
	tableOf := media{shape: table, version: "v1"}
	pods := manyPods(t, 40)
	for _, n := range []int{0, 1, len(pods)} {
		plain := writeTestTable(t, pods[:n], tableOf, "identity").Body.Bytes()
		inYAML, err := yaml.JSONToYAML(plain)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]struct {
			media media
			text  []byte
		}{
			"JSON":   {tableOf, plain},
			"pretty": {media{shape: table, version: "v1", pretty: true}, indented(plain, true)},
			"YAML":   {media{shape: table, version: "v1", encoding: asYAML}, inYAML},
		} {
			got := writeTestTable(t, pods[:n], want.media, "identity")
			if !bytes.Equal(got.Body.Bytes(), want.text) {
				t.Errorf("%s of %d pods differs:\n%.600s\nwant\n%.600s", name, n, got.Body, want.text)
			}
			if n == len(pods) && got.begun > n/2 {
				t.Errorf("%s: %d of %d pods had been read when the first byte was written", name, got.begun, n)
			}
			if mediaType := got.Header().Get("Content-Type"); mediaType != mediaTypes[want.media.encoding] {
				t.Errorf("%s: the content type is %s", name, mediaType)
			}
		}
	}
}

// Rows are compressed together: the one is much like the other.
func TestTable_gzip(t *testing.T) {
	var pods []*wire.Object
	kind := manyPods(t, 1)[0].Kind()
	for i := range 500 {
		o, err := wire.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Namespace: "shop", ResourceVersion: fmt.Sprint(i + 1)}}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, o)
	}
	plain := writeTestTable(t, pods, media{shape: table, version: "v1"}, "identity").Body.Bytes()
	got := writeTestTable(t, pods, media{shape: table, version: "v1"}, "gzip").Body.Bytes()
	z, err := gzip.NewReader(bytes.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := io.ReadAll(z); err != nil || !bytes.Equal(again, plain) {
		t.Fatalf("unpacked there are %d bytes, want %d: %v", len(again), len(plain), err)
	}
	var whole bytes.Buffer
	w, err := gzip.NewWriterLevel(&whole, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(plain)
	_ = w.Close()
	if len(got) > whole.Len()*3/2 {
		t.Errorf("%d bytes are compressed to %d, as a whole to %d", len(plain), len(got), whole.Len())
	}
}
