// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/wire"
)

var (
	pairs = flag.Int("pairs", 1000, "how many random pairs of expression and object there are; with -short at most 300")
	seed  = flag.Int64("seed", 0, "the seed of the random expressions and objects, 0 for a new one")
)

// plainly evaluates an expression in the plain way: cel-go with Kubernetes' libraries and options, and
// the decoded object as a variable without a type.
func plainly(env *cel.Env, text string, variables map[string]any) (value any, evaluated, compiled error) {
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, issues.Err()
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, nil, err
	}
	out, _, err := program.Eval(variables)
	if err != nil {
		return nil, err, nil
	}
	return out.Value(), nil, nil
}

// Random expressions have the result that cel-go has on the decoded object, whether the object is decoded
// from JSON, from protobuf, or not at all because what the expression reads is known; and a condition has
// the result that follows from the results of its conjuncts.
func TestRandom_differential(t *testing.T) {
	if *seed == 0 {
		*seed = time.Now().UnixNano()
	}
	t.Logf("seed %d", *seed)
	r := rand.New(rand.NewSource(*seed))
	maker := specimen.New(r)
	env, err := cel.NewEnv(append(libraries(), cel.Variable("object", cel.DynType),
		cel.Variable("cluster", cel.DynType), cel.Variable("now", cel.TimestampType))...)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	cluster := Cluster{Name: "eu-1", Labels: map[string]string{"env": "prod"}, Version: "v1.37.1"}
	around := NewSurroundings(cluster, now)
	counts := map[string]int{}
	n := *pairs
	if testing.Short() {
		n = min(n, 300)
	}
	for i := range n {
		gvk := randomKinds[i%len(randomKinds)]
		typed := maker.Object(gvk)
		encoding := []wire.Encoding{wire.JSON, wire.Protobuf}[i%2]
		kind := &wire.Kind{GroupVersionKind: gvk, New: newOf(typed)}
		object, err := wire.Encode(typed, encoding, kind)
		if err != nil {
			t.Fatal(err)
		}
		decoded := decode(t, object)
		g := generator{r: r, object: decoded}
		text := g.condition(3)
		variables := map[string]any{"object": decoded, "now": now, "cluster": map[string]any{
			"name": cluster.Name, "labels": map[string]any{"env": "prod"}, "version": cluster.Version,
		}}
		want, wantErr, compileErr := plainly(env, text, variables)
		e, err := Compile(text, Options{Condition: true})
		if (err != nil) != (compileErr != nil) {
			t.Fatalf("%s\ncompiled: %v\nplainly: %v", text, err, compileErr)
		}
		if err != nil {
			counts["not compiled"]++
			continue
		}
		result, err := e.Evaluate(t.Context(), NewRow(object, around))
		if err != nil {
			t.Fatal(err)
		}
		expected := Failed
		if wantBool, ok := want.(bool); ok && wantErr == nil {
			expected = map[bool]Outcome{true: True, false: False}[wantBool]
		}
		if got := result.Outcome(); got != expected {
			t.Fatalf("%s\non %s\n%v, %v\nplainly: %v, %v",
				text, pretty(decoded), result.Value, result.Err, want, wantErr)
		}
		counts[[]string{"false", "true", "failed"}[expected]]++
		if outcome := g.conjuncts(t, e, decoded, object, around, counts); outcome != expected {
			t.Fatalf("%s\non %s\nthe conjuncts give %v, the condition %v", text, pretty(decoded), outcome, expected)
		}
	}
	t.Logf("%d pairs: %v", n, counts)
	for _, what := range []string{"true", "false", "failed", "known", "conjuncts"} {
		if counts[what] < n/50 {
			t.Errorf("only %d of %d are %s: the test does not show much", counts[what], n, what)
		}
	}
}

// conjuncts evaluates each conjunct on the object, and from known values if they can be known.
func (g *generator) conjuncts(t *testing.T, e *Expression, decoded map[string]any, object *wire.Object,
	around *Surroundings, counts map[string]int,
) Outcome {
	t.Helper()
	conjuncts, err := e.Conjuncts()
	if err != nil {
		t.Fatal(err)
	}
	if len(conjuncts) > 1 {
		counts["conjuncts"]++
	}
	row := NewRow(object, around)
	var outcomes []Outcome
	for _, c := range conjuncts {
		result, err := c.Evaluate(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, result.Outcome())
		paths := g.known(c.Paths())
		known, ok := c.From(paths)
		if !ok {
			t.Fatalf("%s reads %q, which is all in %q", c, c.Paths(), paths)
		}
		values := make([]any, len(paths))
		complete := true
		for i, p := range paths {
			if values[i], ok = extract(decoded, p, 0); !ok {
				complete = false
			}
		}
		if !complete {
			counts["unknown"]++
			continue
		}
		before := pretty(values)
		got, err := known.Evaluate(t.Context(), around, values)
		if err != nil || got.Outcome() != result.Outcome() {
			t.Fatalf("%s\non %s\nwith %q = %s\n%v, %v, %v from known values\n%v, %v on the object", c, pretty(decoded),
				paths, pretty(values), got.Value, got.Err, err, result.Value, result.Err)
		}
		if after := pretty(values); before != after {
			t.Fatalf("%s: the values %s were modified: %s", c, before, after)
		}
		counts["known"]++
	}
	return And(outcomes...)
}

// known returns paths that contain the paths that are read, and others, in any order.
func (g *generator) known(read []Path) []Path {
	paths := []Path{{"metadata", "name"}, {"status"}}
	for _, p := range read {
		if g.r.Intn(4) == 0 && len(p) > 1 {
			p = p[:1+g.r.Intn(len(p)-1)]
		}
		paths = append(paths, p)
	}
	g.r.Shuffle(len(paths), reflect.Swapper(paths))
	return paths
}

// extract returns the value at a path, and false if it cannot be known.
func extract(v any, p Path, depth int) (any, bool) {
	if depth == len(p) {
		return v, true
	}
	if p[depth] == Every {
		list, ok := v.([]any)
		if !ok {
			return nil, false
		}
		values := make([]any, len(list))
		for i := range list {
			if values[i], ok = extract(list[i], p, depth+1); !ok {
				return nil, false
			}
		}
		return values, true
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	value, ok := fields[p[depth]]
	if !ok {
		return Missing(depth), true
	}
	return extract(value, p, depth+1)
}

var randomKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Version: "v1", Kind: "Pod"}, {Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "batch", Version: "v1", Kind: "CronJob"}, {Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
}

// generator makes random conditions about an object.
type generator struct {
	r      *rand.Rand
	object map[string]any
	loops  int
}

func (g *generator) pick(texts ...string) string { return texts[g.r.Intn(len(texts))] }

// place is an expression that selects a part of an object, and its value.
type place struct {
	text  string
	value any
}

// place returns a random part of what is at a place.
func (g *generator) place(from place) place {
	for range 6 {
		switch v := from.value.(type) {
		case map[string]any:
			if len(v) == 0 || g.r.Intn(12) == 0 {
				return place{from.text + g.pick(".missing", ".spec.missing", `["missing"]`), nil}
			}
			key := sorted(v)[g.r.Intn(len(v))]
			from = place{from.text + g.access(key), v[key]}
		case []any:
			if len(v) == 0 || g.r.Intn(3) > 0 {
				return from
			}
			i := g.r.Intn(len(v))
			from = place{fmt.Sprintf("%s[%d]", from.text, i), v[i]}
		}
		if g.r.Intn(7) == 0 {
			break
		}
	}
	return from
}

func (g *generator) access(key string) string {
	if !identifier(key) || slices.Contains([]string{"in", "true", "false", "null"}, key) {
		return "[" + quote(key) + "]"
	}
	return g.pick("."+key, "."+key, "."+key, "."+key, "["+quote(key)+"]", ".?"+key+`.orValue("none")`)
}

// quote returns a string literal.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\U%08x`, c)
			continue
		}
		b.WriteRune(c)
	}
	return b.String() + `"`
}

// literal returns a literal, often of the value.
func (g *generator) literal(v any) string {
	if g.r.Intn(3) > 0 {
		switch v := v.(type) {
		case string:
			if len(v) < 1000 {
				return quote(v)
			}
		case int64:
			return strconv.FormatInt(v, 10)
		case bool:
			return strconv.FormatBool(v)
		}
	}
	return g.pick(`"a"`, `""`, "0", "3", "-1", "1.5", "true", "null", `["a"]`, `{"a": "b"}`, "[]", "2u")
}

func (g *generator) condition(depth int) string { return g.about(place{"object", g.object}, depth) }

// about returns a condition about what is at a place.
func (g *generator) about(from place, depth int) string {
	if depth > 0 {
		switch g.r.Intn(8) {
		case 0, 1:
			return g.about(from, depth-1) + " && " + g.about(from, depth-1)
		case 2:
			return "(" + g.about(from, depth-1) + " || " + g.about(from, depth-1) + ")"
		case 3:
			return "!(" + g.about(from, depth-1) + ")"
		case 4:
			return "(" + g.about(from, depth-1) + " ? " + g.about(from, depth-1) + " : " + g.about(from, depth-1) + ")"
		}
	}
	p := g.place(from)
	if list, ok := p.value.([]any); ok && len(list) > 0 && depth > 0 && g.r.Intn(4) > 0 {
		return g.loop(p, list, depth-1)
	}
	if m, ok := p.value.(map[string]any); ok && len(m) > 0 && g.r.Intn(2) == 0 {
		return g.entries(p, m)
	}
	if s, ok := p.value.(string); ok && g.r.Intn(2) == 0 {
		return g.aboutText(p, s)
	}
	return g.simple(p)
}

func (g *generator) simple(p place) string {
	literal := g.literal(p.value)
	switch g.r.Intn(12) {
	case 0, 1:
		return p.text + " == " + literal
	case 2:
		return p.text + " != " + literal
	case 3:
		if strings.HasSuffix(p.text, "]") || strings.HasSuffix(p.text, ")") || !strings.Contains(p.text, ".") {
			return p.text + " == " + p.text
		}
		return "has(" + p.text + ")"
	case 4:
		return p.text + " in [" + literal + ", " + literal + "]"
	case 5:
		return literal + " in " + p.text
	case 6:
		return fmt.Sprintf("size(%s) %s %d", p.text, g.pick(">", "<", "=="), g.r.Intn(3))
	case 7:
		return p.text + g.pick(" < ", " >= ") + g.pick("5", "0", `"m"`, "now", `duration("1h")`)
	case 8:
		return "type(" + p.text + ") == " + g.pick("string", "int", "bool", "list", "map", "null_type")
	case 9:
		return g.pick(`cluster.name == "eu-1"`, `cluster.labels["env"] == "prod"`, `cluster.labels.x == ""`,
			`semver(cluster.version, true).major() == 1`, `now > timestamp("2026-01-01T00:00:00Z")`,
			`object == object`, `has(object.spec)`)
	case 10:
		return "dyn(" + p.text + ") == " + literal
	}
	return g.pick(p.text, p.text+" == "+g.place(place{"object", g.object}).text, "["+p.text+"].size() == 1",
		"[1, 2].exists(object, object == 2)", `{"a": `+p.text+`}.a == `+literal)
}

func (g *generator) aboutText(p place, s string) string {
	part := "a"
	if len(s) > 2 && len(s) < 1000 && strings.ToValidUTF8(s[:2], "") == s[:2] {
		part = s[:2]
	}
	return g.pick(p.text+".startsWith("+quote(part)+")", p.text+".contains("+quote(part)+")",
		p.text+`.matches("^[a-z0-9.-]+$")`, p.text+".find(\"[a-z]+\") != \"\"", p.text+".size() > 3",
		p.text+`.split("").size() > 2`, p.text+".replace("+quote(part)+`, "xyz") != ""`,
		"isIP("+p.text+")", "isQuantity("+p.text+")", "quantity("+p.text+`).isGreaterThan(quantity("1"))`,
		"timestamp("+p.text+") < now", p.text+`.lowerAscii() == "a"`, p.text+" + \"x\" == "+quote(s+"x"),
		p.text+".substring(1).size() >= 0", p.text+".charAt(0) != \"a\"", p.text+`.indexOf("a") >= 0`,
		p.text+`.findAll("[a-z]").distinct().size() > 1`, `"%s-%s".format([`+p.text+`, 1]) != "a-1"`,
		p.text+" < \"m\"", "["+p.text+`, "b"].join("-") == "a-b"`, "!format.dns1123Label().validate("+p.text+").hasValue()")
}

// loop returns a condition about the elements of a list.
func (g *generator) loop(p place, list []any, depth int) string {
	g.loops++
	x := fmt.Sprintf("x%d", g.loops)
	element := place{x, list[g.r.Intn(len(list))]}
	inner := g.about(element, depth)
	part := g.place(element).text
	return g.pick(
		p.text+".exists("+x+", "+inner+")",
		p.text+".exists("+x+", "+inner+")",
		p.text+".all("+x+", "+inner+")",
		p.text+".exists_one("+x+", "+inner+")",
		p.text+".filter("+x+", "+inner+").size() > 0",
		p.text+".map("+x+", "+part+").size() > 1",
		p.text+".map("+x+", "+inner+", "+part+").exists(y, y == "+g.literal(element.value)+")",
		p.text+".exists(i, "+x+", i > 0 && "+inner+")",
		p.text+".map("+x+", "+part+").map(y, y)[0] == "+g.literal(element.value),
		p.text+".map("+x+", size("+part+")).sum() > 3",
		"("+p.text+" + "+p.text+").exists("+x+", "+inner+")",
		p.text+".exists("+x+", object.metadata.name == \"a\")",
		p.text+".first().optMap("+x+", "+inner+").orValue(false)",
	)
}

// entries returns a condition about the entries of a map.
func (g *generator) entries(p place, m map[string]any) string {
	key := sorted(m)[g.r.Intn(len(m))]
	return g.pick(
		p.text+".exists(k, k == "+quote(key)+")",
		p.text+".all(k, size(k) > 2)",
		p.text+".exists(k, v, k == "+quote(key)+" && v == "+g.literal(m[key])+")",
		p.text+".all(k, v, type(v) == string)",
		p.text+"["+quote(key)+"] == "+g.literal(m[key]),
		p.text+"[?"+quote(key)+"].hasValue()",
		quote(key)+" in "+p.text,
		p.text+".size() > 1",
	)
}

func pretty(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
