// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

func widget(t *testing.T, name string) *wire.Object {
	t.Helper()
	kind := &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}
	o, err := wire.NewObject(
		fmt.Appendf(nil,
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"shop","resourceVersion":"7"}}`, name), wire.JSON, kind,
	)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// An object that cannot be encoded is an error for every client, and one line in the log,
// whatever the number of watches.
func TestFrames_error(t *testing.T) {
	var log bytes.Buffer
	c := NewFrames(1<<20, slog.New(slog.NewTextHandler(&log, nil)))
	good := FrameKey{Object: widget(t, "good"), Event: stream.Added}
	bad := FrameKey{Object: widget(t, "bad"), Form: Form{Encoding: Protobuf}, Event: stream.Added}
	for range 3 {
		if data, err := c.Get(good); err != nil || !bytes.HasPrefix(data, []byte(`{"type":"ADDED"`)) {
			t.Fatalf("good: %q, %v", data, err)
		}
		if _, err := c.Get(bad); err == nil {
			t.Fatal("JSON without a Go type was written as protobuf")
		}
	}
	if n := strings.Count(log.String(), "cannot encode object"); n != 1 || !strings.Contains(log.String(), "shop/bad") {
		t.Errorf("logged %d times, want once:\n%s", n, &log)
	}
}

// A panic while a frame is made is an error for every client that waits for the frame:
// none receives an empty one.
func TestFrames_panic(t *testing.T) {
	kind := &wire.Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		New:              func() runtime.Object { panic("no such type") },
	}
	raw, err := (&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bad", Namespace: "shop", ResourceVersion: "7"},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o, err := wire.NewObject(raw, wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	c := NewFrames(1<<20, slog.New(slog.DiscardHandler))
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			data, err := c.Get(FrameKey{Object: o, Event: stream.Added})
			if err == nil || !strings.Contains(err.Error(), "no such type") ||
				!strings.Contains(err.Error(), "shop/bad") {
				t.Errorf("a client gets %q, %v", data, err)
			}
		})
	}
	clients.Wait()
}

// The kept frames are bounded by bytes, and the oldest are dropped first.
func TestFrames_bound(t *testing.T) {
	const room = 20_000
	c := NewFrames(room, slog.New(slog.DiscardHandler))
	size := 0
	for i := range 3000 {
		key := FrameKey{Object: widget(t, fmt.Sprint("w", i)), Event: stream.Added}
		first, err := c.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := c.Get(key); &again[0] != &first[0] {
			t.Fatal("a frame was made twice")
		}
		size = len(first) + frameOverhead + key.Object.Size()
		if c.bytes > room || len(c.byKey)*size > room+5*size || len(c.ring)-c.at != len(c.byKey) ||
			len(c.ring) > 3*1024 {
			t.Fatalf("after %d frames there are %d bytes, %d entries, a ring of %d from %d on", i+1, c.bytes,
				len(c.byKey), len(c.ring), c.at)
		}
	}
}
