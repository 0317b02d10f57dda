// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

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
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/internal/table"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/view"
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
func writeTestTable(t *testing.T, pods []*wire.Object, m respond.Media, encoding string) *tableWriter {
	t.Helper()
	s := &Reader{Logger: slog.New(slog.DiscardHandler), Values: view.NewValues(1 << 20), Tracker: &respond.Tracker{}}
	printer, ok := table.For(corev1.SchemeGroupVersion.WithKind("Pod"))
	if !ok {
		t.Fatal("there is no printer of pods")
	}
	all, err := view.NewMatcher(s.Values, &internalversion.ListOptions{}, view.Target{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	l := &view.Page{Meta: metav1.ListMeta{ResourceVersion: "7"}, Matcher: all, Runs: []view.Run{{
		Objects: func(yield func(string, *wire.Object) bool) {
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
	c := &call{
		Reader: s, Request: &Request{Kind: view.Kind{Printer: printer}}, w: w, r: r, view: &view.Cluster{}, media: m,
	}
	if err := c.writeTable(l); err != nil {
		t.Fatal(err)
	}
	return w
}

func manyPods(t *testing.T, n int) (pods []*wire.Object) {
	t.Helper()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		noise := make([]byte, 1500) // random, so it does not compress well
		for i := range noise {
			noise[i] = 'a' + byte(random.Uint32()%26)
		}
		o, err := wire.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-%05d", i), Namespace: "n", ResourceVersion: fmt.Sprint(1 + i),
			Annotations: map[string]string{"noise": string(noise)},
		}}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, o)
	}
	return pods
}

// Tables for people are written while the objects are read, and are the same as if they
// had been converted as a whole.
func TestTable_isWrittenRowByRow(t *testing.T) {
	tableOf := respond.Media{Shape: respond.Table, Version: "v1"}
	pods := manyPods(t, 120)
	for _, n := range []int{0, 1, len(pods)} {
		plain := writeTestTable(t, pods[:n], tableOf, "identity").Body.Bytes()
		inYAML, err := yaml.JSONToYAML(plain)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]struct {
			media respond.Media
			text  []byte
		}{
			"JSON":   {tableOf, plain},
			"pretty": {respond.Media{Shape: respond.Table, Version: "v1", Pretty: true}, respond.Indent(plain, true)},
			"YAML":   {respond.Media{Shape: respond.Table, Version: "v1", Encoding: encode.YAML}, inYAML},
		} {
			got := writeTestTable(t, pods[:n], want.media, "identity")
			if !bytes.Equal(got.Body.Bytes(), want.text) {
				t.Errorf("%s of %d pods differs:\n%.600s\nwant\n%.600s", name, n, got.Body, want.text)
			}
			if n == len(pods) && got.begun > n/2 {
				t.Errorf("%s: %d of %d pods had been read when the first byte was written", name, got.begun, n)
			}
			if mediaType := got.Header().Get("Content-Type"); mediaType != want.media.Encoding.MediaType() {
				t.Errorf("%s: the content type is %s", name, mediaType)
			}
		}
	}
}

// Rows are compressed together, because they are similar.
func TestTable_gzip(t *testing.T) {
	var pods []*wire.Object
	kind := manyPods(t, 1)[0].Kind()
	for i := range 500 {
		o, err := wire.Encode(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("web-", i), Namespace: "shop", ResourceVersion: fmt.Sprint(i + 1),
			},
		}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, o)
	}
	plain := writeTestTable(t, pods, respond.Media{Shape: respond.Table, Version: "v1"}, "identity").Body.Bytes()
	got := writeTestTable(t, pods, respond.Media{Shape: respond.Table, Version: "v1"}, "gzip").Body.Bytes()
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
