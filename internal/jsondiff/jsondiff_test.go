// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package jsondiff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/jsondiff"
)

func parse(t *testing.T, text string) (v any) {
	t.Helper()
	expect.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

// show returns the differences between two values as text.
func show(old, now any) string {
	var lines []string
	side := func(raw json.RawMessage) string {
		if raw == nil {
			return "-"
		}
		return string(raw)
	}
	all, err := jsondiff.Compare(old, now)
	if err != nil {
		return err.Error()
	}
	for _, d := range all {
		lines = append(lines, fmt.Sprintf("%s: %s > %s", d.Path, side(d.Old), side(d.New)))
	}
	return strings.Join(lines, "; ")
}

func TestCompare(t *testing.T) {
	for _, test := range []struct{ old, now, want string }{
		{`{"a":1}`, `{"a":1}`, ``},
		{`{"a":1}`, `{"a":2}`, `a: 1 > 2`},
		{`{"a":{"b":1}}`, `{"a":{"c":1}}`, `a.b: 1 > -; a.c: - > 1`},
		{`{"a":null}`, `{}`, `a: null > -`},
		{`{"a":null}`, `{"a":0}`, `a: null > 0`},
		{`{"a":[1,2]}`, `{"a":[1,3,4]}`, `a[1]: 2 > 3; a[2]: - > 4`},
		{`{"a":{}}`, `{"a":[]}`, `a: {} > []`},
		{`{"a":[]}`, `{"a":[{"name":"x"}]}`, `a[x]: - > {"name":"x"}`},
		{
			`{"a":[{"name":"x","v":1},{"name":"y","v":1}]}`, `{"a":[{"name":"y","v":2},{"name":"z"}]}`,
			`a[x]: {"name":"x","v":1} > -; a[y].v: 1 > 2; a[z]: - > {"name":"z"}`,
		},
		{`{"a":[{"name":"x"},{"name":"y"}]}`, `{"a":[{"name":"y"},{"name":"x"}]}`, `a[order]: "x y" > "y x"`},
		{
			`{"a":[{"name":"x","v":1},{"name":"x","v":2}]}`, `{"a":[{"name":"x","v":1},{"name":"x","v":3}]}`,
			`a[1].v: 2 > 3`,
		},
		{
			`{"c":[{"type":"Ready","status":"False"}]}`, `{"c":[{"type":"Ready","status":"True"}]}`,
			`c[Ready].status: "False" > "True"`,
		},
		{`{"labels":{"a.b/c":"1"}}`, `{"labels":{"a.b/c":"2"}}`, `labels[a.b/c]: "1" > "2"`},
	} {
		if got := show(parse(t, test.old), parse(t, test.now)); got != test.want {
			t.Errorf("%s and %s: %s, want %s", test.old, test.now, got, test.want)
		}
	}
}

// randomValue returns a random value.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case n < 3 && depth > 0:
		object := map[string]any{}
		for range r.IntN(4) {
			object[[]string{"name", "type", "a", "b.c"}[r.IntN(4)]] = randomValue(r, depth-1)
		}
		return object
	case n < 5 && depth > 0:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, randomValue(r, depth-1))
		}
		return list
	case n == 5:
		return nil
	}
	return float64(r.IntN(3))
}

// TestCompare_findsEveryDifference compares random values: there are differences if and only
// if the values differ.
func TestCompare_findsEveryDifference(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	equal := 0
	for range 50_000 {
		a, b := randomValue(r, 3), randomValue(r, 3)
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) == string(y) {
			equal++
		}
		if differ := show(a, b) != ""; differ != (string(x) != string(y)) {
			t.Fatalf("seed %d: %s and %s: %v", seed, x, y, differ)
		}
	}
	if equal < 500 {
		t.Errorf("%d equal values: hardly a test", equal)
	}
}
