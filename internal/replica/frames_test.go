// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

func widget(t *testing.T, name string) *wire.Object {
	t.Helper()
	kind := &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}
	o, err := wire.NewObject(fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"shop","resourceVersion":"7"}}`, name), wire.JSON, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// An object that cannot be written is an error for who asks for it, and one line in
// the log however many watch it.
func TestFrames_try(t *testing.T) {
	var log bytes.Buffer
	c := newFrames(1<<20, slog.New(slog.NewTextHandler(&log, nil)))
	good := frameKey{object: widget(t, "good"), event: wire.Added}
	bad := frameKey{object: widget(t, "bad"), form: form{encoding: asProtobuf}, event: wire.Added}
	for range 3 {
		if data, ok := c.try(good); !ok || !bytes.HasPrefix(data, []byte(`{"type":"ADDED"`)) {
			t.Fatalf("good: %q, %t", data, ok)
		}
		if _, ok := c.try(bad); ok {
			t.Fatal("JSON was written as protobuf")
		}
	}
	if _, err := c.get(bad); err == nil {
		t.Error("get of what cannot be written is no error")
	}
	if n := strings.Count(log.String(), "object cannot be sent"); n != 1 || !strings.Contains(log.String(), "shop/bad") {
		t.Errorf("logged %d times, want once:\n%s", n, &log)
	}
}

// What is kept is bounded by bytes, and what was made first goes first.
func TestFrames_bound(t *testing.T) {
	const room = 20_000
	c := newFrames(room, slog.New(slog.DiscardHandler))
	for i := range 3000 {
		key := frameKey{object: widget(t, fmt.Sprint("w", i)), event: wire.Added}
		first, err := c.get(key)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := c.get(key); &again[0] != &first[0] {
			t.Fatal("a frame was made twice")
		}
		if c.bytes > room || len(c.byKey) > room/frameOverhead || len(c.ring)-c.at != len(c.byKey) || len(c.ring) > 3*1024 {
			t.Fatalf("after %d frames there are %d bytes, %d entries, a ring of %d from %d on", i+1, c.bytes, len(c.byKey), len(c.ring), c.at)
		}
	}
}
