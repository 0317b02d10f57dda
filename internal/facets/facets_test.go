// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var (
	pods   = schema.GroupResource{Resource: "pods"}
	podGVK = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

func catalog(t testing.TB, list ...string) *Catalog {
	t.Helper()
	c, err := NewCatalog(list)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pod returns a pod as JSON.
func pod(t testing.TB, name, more string) *wire.Object {
	t.Helper()
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop"%s`, name, more)
	o, err := wire.NewObject([]byte(raw+"}"), wire.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// running is the end of a pod with an image and an address.
func running(image, ip string) string {
	return fmt.Sprintf(`},"spec":{"nodeName":"node-7","containers":[{"image":%q}]},`+
		`"status":{"podIP":%[2]q,"podIPs":[{"ip":%[2]q},{"ip":"fd00::1"}]}`, image, ip)
}

// TestColumns_areFieldsOfTheirKinds fails for a default facet that no version of a kind has, or that
// cannot be read from protobuf.
func TestColumns_areFieldsOfTheirKinds(t *testing.T) {
	wanted := map[string]bool{}
	for kind, paths := range columns {
		for _, path := range paths {
			wanted[kind+" "+path] = true
		}
	}
	for _, d := range slices.Concat(everyKind, podFacets) {
		wanted["/Pod "+d.path] = true
	}
	for _, gvk := range specimen.Kinds(t) {
		p := catalog(t, Defaults).Plan(schema.GroupResource{}, gvk, nil)
		_, missing := p.all.of(func() reflect.Type { return reflect.TypeOf(must(scheme.Scheme.New(gvk))).Elem() })
		for i, f := range p.Facets() {
			if !slices.Contains(missing, i) {
				delete(wanted, gvk.Group+"/"+gvk.Kind+" "+f.Path)
			}
		}
	}
	for name := range wanted {
		// These two kinds arrive as JSON.
		if !strings.HasPrefix(name, "apiregistration.k8s.io/") && !strings.HasPrefix(name, "apiextensions.k8s.io/") {
			t.Errorf("%s is not a field of any version that can be read", name)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestNewCatalog_refusesTheContentOfSecrets(t *testing.T) {
	for _, path := range []string{
		".data.password", "data['tls.key']", "stringData.password", "data", ".data[*]",
		"metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']", "metadata.annotations",
		"['data'].x",
	} {
		if _, err := NewCatalog([]string{"secrets:" + path}); err == nil ||
			!strings.Contains(err.Error(), "content of secrets") {
			t.Errorf("secrets:%s: %v", path, err)
		}
	}
	for _, item := range []string{"secrets:.type", "secrets:metadata.annotations['team']", "configmaps:.data.color"} {
		if _, err := NewCatalog([]string{Defaults, item}); err != nil {
			t.Error(err)
		}
	}
}

func TestNewCatalog_errors(t *testing.T) {
	for _, list := range [][]string{
		{"none", "default"}, {"pods"}, {":spec.x"}, {"*:spec.x"}, {"pods:"}, {"pods:."}, {"pods:a..b"}, {"pods:a["},
		{"pods:a[0]"}, {"pods:a[*][*]"}, {"pods:a[*].b[*]"}, {"pods:[*]"}, {"pods:a['']"}, {"pods:['a"}, {"v1/pods:a"},
		{"pods:a[?(@.b)]"},
	} {
		if c, err := NewCatalog(list); err == nil {
			t.Errorf("%q: no error, %+v", list, c.paths)
		}
	}
	for _, list := range [][]string{nil, {}, {None}} {
		if c, err := NewCatalog(list); c != nil || err != nil {
			t.Errorf("%q: %v, %v", list, c, err)
		}
	}
}

func TestPlan_ofACustomResource(t *testing.T) {
	c := catalog(t, Defaults, "widgets.example.com:.spec.owner.team")
	at := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	definition := []byte(`{"spec":{"versions":[{"name":"v0","selectableFields":[{"jsonPath":".spec.old"}]},{"name":"v1",
		"selectableFields":[{"jsonPath":".spec.color"}],"additionalPrinterColumns":[{"jsonPath":".spec.color"},
		{"jsonPath":".status.size"},{"jsonPath":".status.conditions[?(@.type==\"Ready\")].status"},{"jsonPath":"bad["}]}]}}`)
	p := c.Plan(at, gvk, definition)
	for _, path := range []string{
		"spec.color", "status.size", "status.conditions[*].type", "status.conditions[*].status", "spec.owner.team",
		"metadata.uid",
	} {
		if _, ok := p.Facet(path); !ok {
			t.Errorf("no facet %s", path)
		}
	}
	if _, ok := p.Facet("spec.old"); ok {
		t.Error("a facet of another version")
	}
	if c.Plan(at, gvk, slices.Clone(definition)) != p {
		t.Error("clusters with the same definition have two plans")
	}
	if c.Plan(at, gvk, nil) == p {
		t.Error("a cluster without the definition has its plan")
	}
	o, err := wire.NewObject([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},
		"spec":{"color":"red","owner":{"team":"a"}},"status":{"size":2.5,"conditions":[{"type":"Ready","status":"True"}]}}`),
		wire.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Attach(o, nil)
	for path, want := range map[string]any{
		"spec.color": "red", "status.size": 2.5, "spec.owner.team": "a",
		"status.conditions[*].type": []any{"Ready"}, "metadata.ownerReferences[*].kind": []any{},
	} {
		if got, known := Of(o).Value(path); !known || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, %t, want %#v", path, got, known, want)
		}
	}
}

func TestRecord_unknown(t *testing.T) {
	p := catalog(t, "pods:spec.a", "pods:spec.b[*].c", "pods:spec.d").Plan(pods, podGVK, nil)
	for _, tt := range []struct {
		name, spec string
		unknown    []string
	}{
		{"nothing", `{"a":"x","b":[{"c":1},{}],"d":null}`, nil},
		{"twice", `{"a":"x","a":"y","d":1}`, []string{"spec.a"}},
		{"an object", `{"a":{"x":1},"d":1}`, []string{"spec.a"}},
		{"a list", `{"a":[1]}`, []string{"spec.a"}},
		{"not a list", `{"b":{"c":1}}`, []string{"spec.b[*].c"}},
		{"not an object", `7`, []string{"spec.a", "spec.b[*].c", "spec.d"}},
		{"long", `{"d":"` + strings.Repeat("x", maxText+1) + `"}`, []string{"spec.d"}},
		{"many", `{"b":[` + strings.Repeat(`{"c":1},`, maxElements) + `{"c":1}]}`, []string{"spec.b[*].c"}},
		{"a large number", `{"d":` + strings.Repeat("9", 400) + `}`, []string{"spec.d"}},
	} {
		o := pod(t, "web", `},"spec":`+tt.spec)
		p.Attach(o, nil)
		r := Of(o)
		var unknown []string
		for _, f := range p.Facets() {
			if _, known := r.Value(f.Path); !known {
				unknown = append(unknown, f.Path)
			}
			want := Yes
			if slices.Contains(tt.unknown, f.Path) {
				want = Unknown
			}
			c := NewCondition([]string{f.Path}, func([]any) Answer { return Yes })
			if got := c.Of(o); got != want {
				t.Errorf("%s: the condition on %s says %d, want %d", tt.name, f.Path, got, want)
			}
		}
		if !slices.Equal(unknown, tt.unknown) || r.Partial() != (tt.unknown != nil) {
			t.Errorf("%s: unknown are %v, partial is %t", tt.name, unknown, r.Partial())
		}
	}
	if _, known := Of(pod(t, "web", "}")).Value("spec.a"); known {
		t.Error("an object without a record has a value")
	}
}

func TestCondition_isEvaluatedOncePerValue(t *testing.T) {
	p := catalog(t, Defaults).Plan(pods, podGVK, nil)
	calls := 0
	c := NewCondition([]string{"spec.containers[*].image"}, func(values []any) Answer {
		calls++
		return answerOf(slices.Contains(values[0].([]any), any("shop:2")))
	})
	for i := range 1000 {
		o := pod(t, fmt.Sprint("web-", i), running(fmt.Sprint("shop:", i%10), fmt.Sprint("10.0.0.", i%250)))
		p.Attach(o, nil)
		if got, want := c.Of(o), answerOf(i%10 == 2); got != want {
			t.Fatalf("object %d: %d, want %d", i, got, want)
		}
	}
	if calls != 10 {
		t.Errorf("evaluated %d times, want 10", calls)
	}
	if got := c.Of(pod(t, "other", "}")); got != Unknown {
		t.Errorf("an object without a record: %d", got)
	}
	// The answers of another plan, of a cluster with another definition, are its own.
	other := catalog(t, "pods:spec.nodeName").Plan(pods, podGVK, nil)
	o := pod(t, "web", running("shop:2", "10.0.0.1"))
	other.Attach(o, nil)
	if got := c.Of(o); got != Unknown || c.Has(other) || !c.Has(p) {
		t.Errorf("an object without the facet: %d", got)
	}
}

func TestInterner_isBounded(t *testing.T) {
	p := catalog(t, "pods:spec.nodeName").Plan(pods, podGVK, nil)
	var kept *wire.Object
	for i := range 3*maxInterned + 10 {
		o := pod(t, "web", fmt.Sprintf(`},"spec":{"nodeName":"node-%d"}`, i))
		p.Attach(o, nil)
		if i == 0 {
			kept = o
		}
	}
	if n := p.Interned(); max(n.Values, n.Tuples) > 2*maxInterned || n.Values < maxInterned || n.Bytes <= 0 {
		t.Errorf("interned %+v", n)
	}
	if got, known := Of(kept).Value("spec.nodeName"); got != "node-0" || !known {
		t.Errorf("a value that the interner has dropped is %v", got)
	}
}

func TestLookup(t *testing.T) {
	p := catalog(t, Defaults).Plan(pods, podGVK, nil)
	s := store.New((*wire.Object).Key, &store.Options[*wire.Object]{Attribute: Attribute})
	var all []*wire.Object
	for i := range 2000 {
		o := pod(t, fmt.Sprint("web-", i), running("shop:1", fmt.Sprintf("10.0.%d.%d", i/200, i%200)))
		if i != 7 {
			p.Attach(o, nil)
		}
		all = append(all, o)
	}
	three := pod(t, "three", `},"status":{"podIPs":[{"ip":"1.1.1.1"},{"ip":"1.1.1.2"},{"ip":"1.1.1.3"}]}`)
	p.Attach(three, nil)
	if _, err := s.Replace(append(all, three), 1); err != nil {
		t.Fatal(err)
	}
	for round := range 4 { // without columns, then with them
		for _, tt := range []struct{ path, text, want string }{
			{"status.podIP", "10.0.3.5", "shop/web-605"},
			{"status.podIPs[*].ip", "10.0.3.5", "shop/web-605"},
			{"status.podIPs[*].ip", "1.1.1.3", "shop/three"},
			{"metadata.name", "web-1999", "shop/web-1999"},
			{"status.podIP", "10.9.9.9", ""},
			{"metadata.uid", "x", ""},
		} {
			var yes, unknown []string
			for o, answer := range Lookup(s.Snapshot(), tt.path, tt.text) {
				if answer == Yes {
					yes = append(yes, o.Key())
				} else {
					unknown = append(unknown, o.Key())
				}
			}
			if strings.Join(yes, " ") != tt.want {
				t.Errorf("round %d: %s=%s found %v, want %s", round, tt.path, tt.text, yes, tt.want)
			}
			if want := tt.path != "metadata.name"; slices.Equal(unknown, []string{"shop/web-7"}) != want {
				t.Errorf("round %d: %s=%s is unknown of %v", round, tt.path, tt.text, unknown)
			}
		}
	}
	var many int
	for range Lookup(s.Snapshot(), "status.podIPs[*].ip", "fd00::1") {
		many++
	}
	if many != 2000 {
		t.Errorf("found %d objects with the address of all", many)
	}
}

func noBefore(string) *wire.Object { return nil }

// TestAround_sharesWithThePreviousState fails if a changed object loses what it shares with others
// because the interner has forgotten it.
func TestAround_sharesWithThePreviousState(t *testing.T) {
	p := catalog(t, Defaults).Plan(pods, podGVK, nil)
	first := pod(t, "web", running("shop:1", "10.0.0.1"))
	p.Attach(first, nil)
	p.forget()
	transform := p.Around(nil, false, func(string) *wire.Object { return first })
	same := must(transform(pod(t, "web", running("shop:1", "10.0.0.2"))))
	if Of(same).shared != Of(first).shared || Of(same).placed != Of(first).placed {
		t.Error("an object with another address does not share the values of its former state")
	}
	other := must(transform(pod(t, "web", running("shop:2", "10.0.0.2"))))
	if Of(other).shared == Of(first).shared {
		t.Error("an object with another image shares all values")
	}
	at := slices.IndexFunc(p.each[shared], func(i int) bool { return p.facets[i].Path == "spec.serviceAccountName" })
	if Of(other).shared.values[at] != Of(first).shared.values[at] {
		t.Error("an object with another image does not share the other values")
	}
}

func TestAround(t *testing.T) {
	managed := `,"managedFields":[{"manager":"kubectl","apiVersion":"apps/v1beta1"}]` + running("shop:1", "10.0.0.1")
	p := catalog(t, Defaults).Plan(pods, podGVK, nil)
	manager, image := "metadata.managedFields[*].manager", "spec.containers[*].image"
	drop := func(o *wire.Object) (*wire.Object, error) { return o.Without(wire.ManagedFields), nil }
	o := must(p.Around(drop, true, noBefore)(pod(t, "web", managed)))
	if got, _ := Of(o).Value(manager); !reflect.DeepEqual(got, []any{"kubectl"}) {
		t.Errorf("the manager is %v", got)
	}
	if strings.Contains(string(o.Bytes()), "kubectl") {
		t.Error("managed fields were not dropped")
	}
	redact := func(o *wire.Object) (*wire.Object, error) {
		raw := string(o.Without(wire.ManagedFields).Bytes())
		return wire.NewObject([]byte(strings.ReplaceAll(raw, "shop:1", "hidden")), wire.JSON, nil)
	}
	o = must(p.Around(redact, false, noBefore)(pod(t, "web", managed)))
	for path, want := range map[string]any{
		manager: []any{"kubectl"}, image: []any{"hidden"}, "spec.nodeName": "node-7",
	} {
		if got, _ := Of(o).Value(path); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	fail := func(*wire.Object) (*wire.Object, error) { return nil, fmt.Errorf("refused") }
	if _, err := p.Around(fail, false, noBefore)(pod(t, "web", managed)); err == nil {
		t.Error("the error of a transformation is lost")
	}
	o = must(p.Around(nil, false, noBefore)(pod(t, "web", managed)))
	if Of(o) == nil {
		t.Error("no record without a transformation")
	}
}

func TestShare(t *testing.T) {
	p := catalog(t, Defaults).Plan(pods, podGVK, nil)
	stored, arrived := pod(t, "web", "}"), pod(t, "web", "}")
	p.Attach(arrived, nil)
	Share(stored, arrived)
	if Of(stored) == nil || Of(stored) != Of(arrived) {
		t.Error("the stored object has not got the record")
	}
	other := pod(t, "web", "}")
	p.Attach(other, nil)
	before := Of(stored)
	Share(stored, other)
	Share(stored, pod(t, "web", "}"))
	if Of(stored) != before {
		t.Error("a complete record was replaced")
	}
}

func TestAppendText_isExact(t *testing.T) {
	for text, tag := range map[string]byte{
		"10.0.0.1": tagIPv4, "255.255.255.255": tagIPv4, "0.0.0.0": tagIPv4, "256.0.0.1": tagText, "1.2.3": tagText,
		"1.2.3.4.5": tagText, "01.2.3.4": tagText, "1..2.3": tagText, "1.2.3.": tagText, "00.0.0.0": tagText,
		"fd00::1": tagIPv6, "::1": tagIPv6, "fd00:0::1": tagText, "FD00::1": tagText, "::ffff:1.2.3.4": tagText,
		"fe80::1%eth0": tagText, "": tagText, "x": tagText,
		"12345678-90ab-cdef-1234-567890abcdef": tagUUID, "12345678-90AB-cdef-1234-567890abcdef": tagText,
		"12345678-90ab-cdef-1234-567890abcde-": tagText, "12345678-90abcdef-1234--567890abcdef": tagText,
		"2026-11-19T23:40:51Z": tagMoment, "1969-12-31T23:59:59Z": tagMoment, "2026-13-19T23:40:51Z": tagText,
		"2026-11-19T24:00:00Z": tagText, "2026-11-19t23:40:51Z": tagText,
	} {
		b := appendText(nil, []byte(text))
		if got, known := decode(string(b)); got != text || !known || next(b) != len(b) || b[0] != tag {
			t.Errorf("%q is %q with tag %d, want tag %d", text, got, b[0], tag)
		}
	}
}
