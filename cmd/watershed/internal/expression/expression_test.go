// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

// pod is the object of the questions below.
func pod() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": "web-0", "namespace": "shop",
			"labels":            map[string]any{"team": "a", "app.kubernetes.io/name": "web"},
			"creationTimestamp": "2026-11-01T00:00:00Z",
		},
		"spec": map[string]any{"nodeName": "node-7", "containers": []any{
			map[string]any{
				"name": "web", "image": "web:1.2.3",
				"resources": map[string]any{"limits": map[string]any{"cpu": "1500m"}},
			},
			map[string]any{"name": "log", "image": "log:4", "resources": map[string]any{}},
		}},
		"status": map[string]any{"podIP": "10.3.4.5", "phase": "Running", "containerStatuses": []any{
			map[string]any{"restartCount": int64(7)}, map[string]any{"restartCount": int64(0)},
		}},
	}
}

func surroundings() *Surroundings {
	return NewSurroundings(Cluster{"eu-1", map[string]string{"env": "prod"}, "v1.33.4"},
		time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
}

func compiled(tb testing.TB, text string, condition bool) *Expression {
	tb.Helper()
	e, err := Compile(text, Options{Condition: condition})
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return e
}

// The questions that users ask, what each reads, and its answer for the pod.
func TestEvaluate_questions(t *testing.T) {
	for _, c := range []struct {
		text, reads string
		want        any
	}{
		{`object.spec.containers.exists(c, c.image.endsWith(":1.2.3"))`, "spec.containers[*].image", true},
		{
			`object.spec.containers.exists(c, !has(c.resources.limits))`, "spec.containers[*].resources.limits", true,
		},
		{`object.metadata.labels.team`, "metadata.labels.team", "a"},
		{`object.metadata.labels["app.kubernetes.io/name"]`, `metadata.labels["app.kubernetes.io/name"]`, "web"},
		{
			`object.status.containerStatuses.map(c, c.restartCount).sum() > 5`,
			"status.containerStatuses[*].restartCount", true,
		},
		{`object.status.podIP == "10.3.4.5"`, "status.podIP", true},
		{`cidr("10.0.0.0/8").containsIP(object.status.podIP)`, "status.podIP", true},
		{`timestamp(object.metadata.creationTimestamp) < now - duration("240h")`, "metadata.creationTimestamp", true},
		{`cluster.version.startsWith("v1.33")`, "", true},
		{`semver(cluster.version, true).isLessThan(semver("1.34.0"))`, "", true},
		{`cluster.labels.env`, "", "prod"},
		{
			`object.spec.containers.map(c, has(c.resources.limits), quantity(c.resources.limits.cpu))`,
			"spec.containers[*].resources.limits", []any{"1500m"},
		},
		{`object.?spec.?priority.orValue(3)`, "spec.priority", int64(3)},
		{`object.?spec.?nodeName.orValue("none")`, "spec.nodeName", "node-7"},
		{`object.spec.containers[0].image`, "spec.containers[*].image", "web:1.2.3"},
		{`object.metadata.labels.exists(k, k == "team")`, "metadata.labels[*]", true},
		{`object.metadata.labels.all(k, v, size(v) < 4)`, "metadata.labels[*]", true},
		{`size(object.spec.containers) == 2`, "spec.containers", true},
		{`object.spec.containers.all(c, true)`, "spec.containers", true},
		{`dyn(object.spec)["nodeName"]`, "spec.nodeName", "node-7"},
		{`[1].exists(object, object == 1)`, "", true},
		{`[1].exists(now, now == 1)`, "", true},
		{`object.metadata.namespace + "/" + object.metadata.name`, "metadata.name metadata.namespace", "shop/web-0"},
		{`{"a": [object.spec.nodeName, dyn(1.5), dyn(2u), dyn(null)]}`, "spec.nodeName", map[string]any{
			"a": []any{"node-7", 1.5, uint64(2), nil},
		}},
		{`timestamp("2026-01-01T00:00:00Z") + duration("1h")`, "", time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)},
		{`type(object)`, "everything ", "map"},
	} {
		_, isCondition := c.want.(bool)
		e := compiled(t, c.text, isCondition)
		result, err := e.Evaluate(t.Context(), NewDecodedRow(pod(), surroundings()))
		if err != nil || result.Err != nil {
			t.Errorf("%s: %v %v", c.text, err, result.Err)
		}
		if diff := cmp.Diff(c.want, result.Value); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
		var reads []string
		for _, p := range e.Paths() {
			if len(p) == 0 {
				reads = append(reads, "everything")
			}
			reads = append(reads, p.String())
		}
		if got := strings.Join(reads, " "); got != c.reads {
			t.Errorf("%s reads %q, want %q", c.text, got, c.reads)
		}
		if e.ReadsCluster() != strings.Contains(c.text, "cluster.") {
			t.Errorf("%s: ReadsCluster is %t", c.text, e.ReadsCluster())
		}
		if e.ReadsNow() != strings.Contains(c.text, "now -") {
			t.Errorf("%s: ReadsNow is %t", c.text, e.ReadsNow())
		}
	}
}

func TestEvaluate_failsOnOneObject(t *testing.T) {
	for text, want := range map[string]string{
		`object.spec.nope == 1`:                           "no such key: nope",
		`object.spec.nodeName > 5`:                        "no such overload",
		`object.spec.nodeName`:                            "the condition is of type string, and must be true or false",
		`object.spec.containers[7].name == ""`:            "index out of bounds: 7",
		`quantity(object.spec.nodeName).asInteger() == 1`: "quantities must match",
		`object.metadata.labels.exists(k, k.a == "b")`:    "no such key: a",
	} {
		e := compiled(t, text, true)
		result, err := e.Evaluate(t.Context(), NewDecodedRow(pod(), surroundings()))
		if err != nil || result.Err == nil || !strings.Contains(result.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, result.Err, want)
		}
		if result.Outcome() != Failed {
			t.Errorf("%s is %v", text, result.Outcome())
		}
	}
}

func TestEvaluate_boundsResults(t *testing.T) {
	for _, text := range []string{
		`lists.range(20000)`, `lists.range(600).map(a, object)`, `[object.text, object.text, object.text]`,
	} {
		row := NewDecodedRow(map[string]any{"text": strings.Repeat("a", 500_000)}, surroundings())
		result, err := compiled(t, text, false).Evaluate(t.Context(), row)
		if err != nil || result.Err == nil || result.Value != nil {
			t.Errorf("%s: %v %v", text, result.Err, err)
		}
	}
}

// A loop ends when the context does.
func TestEvaluate_endsWithContext(t *testing.T) {
	e := compiled(t, `lists.range(300).all(a, lists.range(300).all(b, a + b >= 0))`, true)
	ctx := &endingContext{Context: t.Context(), checks: 3}
	_, err := e.Evaluate(ctx, NewDecodedRow(nil, surroundings()))
	if !errors.Is(err, context.Canceled) || ctx.checks > 0 {
		t.Errorf("%v after %d checks", err, 3-ctx.checks)
	}
}

// endingContext ends at a number of checks.
type endingContext struct {
	context.Context
	checks int
}

func (c *endingContext) Err() error {
	if c.checks--; c.checks <= 0 {
		return context.Canceled
	}
	return nil
}

func TestRow_decodesOnce(t *testing.T) {
	raw := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"n"}}`
	kind := &wire.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}
	object, err := wire.NewObject([]byte(raw), wire.JSON, kind)
	if err != nil {
		t.Fatal(err)
	}
	row := NewRow(object, surroundings())
	if _, err := compiled(t, `cluster.name == "eu-1"`, true).Evaluate(t.Context(), row); err != nil || row.decoded != nil {
		t.Errorf("the object was decoded for an expression that does not read it: %v", err)
	}
	var first any
	for range 2 {
		result, err := compiled(t, `object.spec.nodeName`, false).Evaluate(t.Context(), row)
		if err != nil || result.Value != "n" {
			t.Fatal(result, err)
		}
		if first != nil && first != row.decoded {
			t.Error("the object was decoded again")
		}
		first = row.decoded
	}
	// A kind without a Go type cannot be read from protobuf.
	typed := &wire.Kind{GroupVersionKind: kind.GroupVersionKind, New: newOf(&corev1.Pod{})}
	encoded, err := wire.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, wire.Protobuf, typed)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := wire.NewObject(encoded.Bytes(), wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compiled(t, `object.a`, false).Evaluate(t.Context(), NewRow(unknown, surroundings())); err == nil {
		t.Error("an object that cannot be decoded has a value")
	}
}

func TestCompile_errors(t *testing.T) {
	const variables = "; the variables are object, cluster and now"
	for text, want := range map[string]string{
		``:                      "expression: it is empty",
		`object.a ==`:           "expression: column 12: the expression ends too early",
		`object.a = 1`:          "expression: column 10: = is not part of the language",
		`objct.a == 1`:          "expression: column 1: there is no variable or function objct" + variables,
		`cluster.nam == "a"`:    `expression: column 8: cluster has no field "nam", did you mean "name"?`,
		strings.Repeat("(", 99): "expression: the expression is nested too deep",
		`cluster.name == 1`:     "expression: column 14: the operator == cannot be used with (string, int)",
		"object.a\n == 'b' && now == 1": "expression: line 2, column 16: the operator == " +
			"cannot be used with (timestamp, int)",
		`now`: "expression: a condition must be true or false, and this is of type timestamp",
		`object.a.matches("(")`: "expression: column 18: the regular expression is not valid: error parsing regexp: " +
			"missing closing ): `(`",
		`Pod{}.a == 1`:                   `expression: column 4: there are no types to construct objects of`,
		`cluster.name.size(3) == 1`:      "expression: column 18: the function size cannot be used with string.(int)",
		`timestamp("tomorrow") < now`:    "expression: column 11: invalid timestamp argument",
		`authorizer.group("").check("")`: "expression: column 1: there is no variable or function authorizer" + variables,
		"object.a == \"\xff\"":           "expression: it is not valid UTF-8",
	} {
		_, err := Compile(text, Options{Condition: true})
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\n%s", text, err, want)
		}
	}
	var at *Error
	_, err := Compile(`object.a && now > object.b`, Options{Condition: true, RefuseNow: true})
	if !errors.As(err, &at) || at.Column != 13 {
		t.Errorf("now in a watch: %v", err)
	}
	if _, err := Compile(`[1].all(now, now > 0)`, Options{Condition: true, RefuseNow: true}); err != nil {
		t.Errorf("a variable of a loop that is named now: %v", err)
	}
}

func TestConjuncts(t *testing.T) {
	e := compiled(t, `object.a == 1 && (object.b || object.c) && (object.d && cluster.name == "x") && `+
		`object.e.all(f, f && now > f)`, true)
	conjuncts, err := e.Conjuncts()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range conjuncts {
		got = append(got, fmt.Sprintf("%s %v %t %t", c, c.Paths(), c.ReadsCluster(), c.ReadsNow()))
	}
	want := []string{
		"object.a == 1 [a] false false", "object.b || object.c [b c] false false", "object.d [d] false false",
		`cluster.name == "x" [] true false`, "object.e.all(f, f && now > f) [e[*]] false true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	single := compiled(t, `object.a || object.b && object.c`, true)
	if conjuncts, err := single.Conjuncts(); err != nil || len(conjuncts) != 1 || conjuncts[0] != single {
		t.Errorf("%v, %v", conjuncts, err)
	}
}

func TestAnd(t *testing.T) {
	for _, c := range [][]Outcome{
		{True}, {True, True, True}, {False, True, False}, {False, Failed, False}, {Failed, True, Failed},
		{Failed, Failed, True, Failed},
	} {
		want, outcomes := c[0], c[1:]
		if got := And(outcomes...); got != want {
			t.Errorf("%v: %v, want %v", outcomes, got, want)
		}
	}
}

func TestKnown(t *testing.T) {
	e := compiled(t, `object.spec.list.exists(c, c.image == "b" && c.name == "x")`, true)
	if _, ok := e.From([]Path{{"spec", "list", Every, "image"}}); ok {
		t.Error("the name is not known")
	}
	known, ok := e.From([]Path{{"spec", "list", Every, "image"}, {"metadata"}, {"spec", "list", Every, "name"}})
	if !ok || !slices.Equal(known.Uses(), []int{0, 2}) {
		t.Fatalf("%t, uses %v", ok, known.Uses())
	}
	for _, c := range []struct {
		images, names any
		want          Outcome
		err           string
	}{
		{[]any{"a", "b"}, []any{"y", "x"}, True, ""},
		{[]any{"a", "b"}, []any{"x", "y"}, False, ""},
		{[]any{"a", "b"}, []any{"x", Missing(3)}, Failed, ""},
		{[]any{}, []any{}, False, ""},
		{Missing(0), Missing(0), Failed, ""},
		{Missing(1), Missing(1), Failed, ""},
		{[]any{"a", "b"}, []any{"x"}, 0, "the list has 1 elements here and 2 elsewhere"},
		{"a", []any{"x"}, 0, "a string, and must be a []any"},
		{Missing(4), Missing(4), 0, "4 of 4 names cannot be what exists"},
	} {
		result, err := known.Evaluate(t.Context(), surroundings(), []any{c.images, nil, c.names})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v %v: %v, want %q", c.images, c.names, err, c.err)
			}
			continue
		}
		if err != nil || result.Outcome() != c.want {
			t.Errorf("%v %v: %v %v %v", c.images, c.names, result.Value, result.Err, err)
		}
	}
}

func widget(tb testing.TB, file string) *Schema {
	tb.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	d, err := ParseDocument(text)
	if err != nil {
		tb.Fatal(err)
	}
	s := d.Schema(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	if s == nil || d.Schema(corev1.SchemeGroupVersion.WithKind("Pod")) != nil {
		tb.Fatal("the document does not have Widget, or it has Pod")
	}
	return s
}

func TestCheck_schemas(t *testing.T) {
	newer, older := widget(t, "newer.json"), widget(t, "older.json")
	for _, c := range []struct {
		text string
		// newer, older and both have the error for these schemas.
		newer, older, both string
	}{
		{text: `object.spec.size > 3 && object.spec.parts.exists(p, p.image == "a")`},
		{text: `object.metadata.labels["a"] == "b" && object.metadata.namespace == "c"`},
		{text: `timestamp(object.spec.notAfter) < now`},
		{text: `object.spec.port == 80 || object.spec.port == "http"`},
		{text: `object.spec.ratio > 1 && object.spec.ratio > 1.5`},
		{text: `object.spec.settings.mode == "a" && object.spec.settings.other.more == 3`},
		{text: `object.spec.tree.children.exists(a, a.children.exists(b, b.value == "c"))`},
		{text: `object.spec.template.metadata.name == "a" && dyn(object.spec.template.spec)["a-b"] == "c"`},
		{text: `object.spec.anything.goes && object.?spec.?paused.orValue(false)`},
		{
			text:  `object.spec.replicas > 3`,
			older: `column 12: object.spec has no field "replicas"`,
		},
		{
			text:  `object.spec.older == "a" || object.spec.replicas == 1`,
			newer: `column 12: object.spec has no field "older"`,
			older: `column 40: object.spec has no field "replicas"`,
		},
		{
			text:  `object.spec.parts.exists(p, has(p.limits.cpu))`,
			older: `column 34: object.spec.parts[*] has no field "limits"`,
		},
		{
			text: `has(object.spec.pausd)`, both: `column 4: object.spec has no field "pausd", did you mean "paused"?`,
		},
		{
			text: `object.spec.parts.exists(p, p.images == "a")`,
			both: `column 30: object.spec.parts[*] has no field "images", did you mean "image"?`,
		},
		{
			text: `object.spec.tree.children.exists(a, a.children.exists(b, b.valeu == "c"))`,
			both: `column 59: object.spec.tree.children[*].children[*] has no field "valeu", did you mean "value"?`,
		},
		{text: `object.Spec.size == 1`, both: `column 7: object has no field "Spec", did you mean "spec"?`},
		{text: `object.spec.replicsa > 1`, newer: "?", older: "?", both: `column 12: object.spec has no field "replicsa"`},
		{text: `object.spec.size == "3"`, both: "column 18: the operator == cannot be used with (int, string)"},
		{text: `object.spec.notAfter < now`, both: "column 22: the operator < cannot be used with (string, timestamp)"},
		{text: `object.spec.size`, both: "column 1: a condition must be true or false, and this is of type int"},
		{
			text: `object.spec["size"] == 1`,
			both: `column 12: [] cannot be used with (Widget/.spec, string); the fields of an object follow a dot, ` +
				`and dyn(x)["a-b"] selects a field whose name cannot`,
		},
	} {
		e := compiled(t, c.text, true)
		if _, err := e.Check([]*Schema{newer, nil}); err != nil {
			t.Errorf("%s: a cluster whose schema is not known may have it: %v", c.text, err)
		}
		checked, err := e.Check([]*Schema{newer, older})
		if c.both != "" {
			if err == nil || !strings.HasPrefix(err.Error(), "expression: "+c.both) {
				t.Errorf("%s:\n%v\nwant %s", c.text, err, c.both)
			}
			if c.newer == "" {
				c.newer, c.older = c.both, c.both
			}
		} else if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if c.newer == "?" {
			continue
		}
		lacking := 0
		for i, want := range []string{c.newer, c.older} {
			got := ""
			if checked.Errors[i] != nil {
				got = checked.Errors[i].Error()
				lacking++
			}
			if got != want {
				t.Errorf("%s: schema %d: %q, want %q", c.text, i, got, want)
			}
		}
		if checked.Lacking() != lacking {
			t.Errorf("%s: %d schemas lack it, want %d", c.text, checked.Lacking(), lacking)
		}
	}
}

func TestCache(t *testing.T) {
	c := NewCache()
	first, err := c.Compile("object.a", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.Compile("object.a", Options{}); again != first {
		t.Error("the expression was compiled again")
	}
	if other, _ := c.Compile("object.a", Options{Condition: true}); other == nil || other == first {
		t.Error("the options were ignored")
	}
	for i := range maxExpressions {
		if _, err := c.Compile(fmt.Sprintf("object.a%d", i), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := c.Compile("object.a", Options{}); again == first {
		t.Error("the cache keeps more expressions than its limit")
	}
	reads := 0
	read := func() ([]byte, error) {
		reads++
		return os.ReadFile("testdata/newer.json")
	}
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	one, err := c.Document("1", read)
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.Document("1", read)
	if err != nil || one.Schema(kind) != two.Schema(kind) || reads != 1 {
		t.Errorf("the document was read %d times: %v", reads, err)
	}
	if _, err := c.Document("2", func() ([]byte, error) { return []byte("{"), nil }); err == nil {
		t.Error("a broken document has no error")
	}
}
