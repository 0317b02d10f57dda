// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package specimen makes random objects of every built-in kind, for tests of code that
// must work with all of them.
package specimen

import (
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// Kinds returns all kinds of client-go's scheme whose objects have metadata, sorted.
func Kinds(tb testing.TB) []schema.GroupVersionKind {
	tb.Helper()
	var all []schema.GroupVersionKind
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if _, ok := empty(gvk).(metav1.Object); ok && gvk.Version != runtime.APIVersionInternal {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	if len(all) < 100 {
		tb.Fatalf("the scheme has only %d kinds", len(all))
	}
	return all
}

func empty(gvk schema.GroupVersionKind) runtime.Object {
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	return o
}

// Rand returns a source of random numbers and logs its seed, so that a failure can be
// reproduced.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := time.Now().UnixNano()
	tb.Logf("seed %d", seed)
	return rand.New(rand.NewSource(seed))
}

// Maker makes random objects. It is not safe for concurrent use.
type Maker struct {
	*randfill.Filler
	rand *rand.Rand
}

// New returns a maker that takes its random numbers from r.
func New(r *rand.Rand) *Maker {
	more := func(serializer.CodecFactory) []any {
		return []any{
			func(v *intstr.IntOrString, c randfill.Continue) {
				if c.Bool() {
					*v = intstr.FromString(c.String(0))
				} else {
					*v = intstr.FromInt32(c.Int31())
				}
			},
			func(v *metav1.FieldsV1, _ randfill.Continue) {
				v.SetRawString(`{"f:metadata":{"f:labels":{".":{},"f:a\"}]{[":{}}}}`)
			},
			func(v *metav1.ManagedFieldsEntry, c randfill.Continue) { c.FillNoCustom(v) },
		}
	}
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, more)
	codecs := serializer.NewCodecFactory(scheme.Scheme)
	return &Maker{
		Filler: fuzzer.FuzzerFor(funcs, rand.NewSource(r.Int63()), codecs).NilChance(.3).NumElements(0, 2), rand: r,
	}
}

// oddNames need escapes in JSON, or resemble JSON syntax.
var oddNames = []string{
	"web-0", "a", "kube-root-ca.crt", "system:node:x", `with "quotes"`, `back\slash\`, "höhe", "<&>", "line\nend",
	"metadata", "}", "{\"name\":\"x\"", "\u2028", "日本", strings.Repeat("long-", 50),
}

// Object returns an object of a kind of the scheme. It has a name, and its apiVersion
// and kind are not set. Some objects have an unusual resourceVersion or none.
func (m *Maker) Object(gvk schema.GroupVersionKind) runtime.Object {
	o := empty(gvk)
	m.Fill(o)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	meta := o.(metav1.Object)
	meta.SetName(m.oddName())
	meta.SetNamespace("")
	if m.rand.Intn(2) == 0 {
		meta.SetNamespace(m.oddName())
	}
	switch m.rand.Intn(10) {
	case 0:
		meta.SetResourceVersion("")
	case 1:
		meta.SetResourceVersion("0" + strconv.Itoa(m.rand.Int()))
	case 2:
		meta.SetResourceVersion("v-" + strconv.Itoa(m.rand.Int()))
	}
	return o
}

func (m *Maker) oddName() string { return oddNames[m.rand.Intn(len(oddNames))] }
