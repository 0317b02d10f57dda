// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

// TestNewObject_bounds checks the limits on what an object is filed by, and that errors do
// not repeat a long text.
func TestNewObject_bounds(t *testing.T) {
	long := strings.Repeat("a", 2<<20)
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, `"l%d":"v",`, i)
	}
	for name, c := range map[string]struct {
		object   string
		nameless bool
	}{
		"name": {
			fmt.Sprintf(`{"apiVersion":"v1","kind":"A","metadata":{"name":%q,"resourceVersion":"1"}}`, long), true,
		},
		"namespace": {
			fmt.Sprintf(`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","namespace":%q,"resourceVersion":"1"}}`,
				long), true,
		},
		"kind": {
			fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"a","resourceVersion":"1"}}`, long), false,
		},
		"apiVersion": {
			fmt.Sprintf(`{"apiVersion":%q,"kind":"A","metadata":{"name":"a","resourceVersion":"1"}}`, "g/"+long), false,
		},
		"slashes": {
			fmt.Sprintf(`{"apiVersion":"a/b/%.400s","kind":"A","metadata":{"name":"a","resourceVersion":"1"}}`, long),
			false,
		},
		"labels": {
			fmt.Sprintf(
				`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","resourceVersion":"1","labels":{%s"z":"z"}}}`,
				many.String(),
			), false,
		},
	} {
		_, err := wire.NewObject([]byte(c.object), wire.JSON, nil)
		var failed *wire.ObjectError
		if !errors.As(err, &failed) || stream.Nameless(failed) != c.nameless || len(err.Error()) > 4<<10 ||
			len(failed.Key) > 1<<10 {
			t.Errorf("%s: %T of %d bytes", name, err, len(fmt.Sprint(err)))
		}
	}
}

// TestLabels_many checks that labels are not compared each with each.
func TestLabels_many(t *testing.T) {
	var text strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&text, `"label-%d":"%d",`, i, i)
	}
	o, err := wire.NewObject(
		[]byte(
			fmt.Sprintf(
				`{"apiVersion":"v1","kind":"A","metadata":{"name":"a","resourceVersion":"1","labels":{%s"label-7":"again"}}}`, text.String(),
			),
		), wire.JSON, nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	began, n, last := time.Now(), 0, ""
	o.EachLabel(func(key, value string) {
		n++
		if key == "label-7" {
			last += value
		}
	})
	if n != 9000 || last != "again" {
		t.Errorf("%d labels, and the one that occurs twice is %q", n, last)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("reading them took %v", took)
	}
}
