// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package jsondecode_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
	"github.com/watershed-project/watershed/wire/internal/jsondecode"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the random tests; 0 is another one each time")
	inputs = flag.Int("inputs", 20_000, "number of random inputs")
)

// all has a field of each type that is decoded in a way of its own, and names that are easily confused.
type all struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	S      string `json:"s"`
	Upper  string `json:"S"`
	Bare   string
	Hidden string  `json:"-"`
	Dash   string  `json:"-,"` //nolint:staticcheck // its name is "-"
	B      bool    `json:"b"`
	I      int     `json:"i"`
	I8     int8    `json:"i8"`
	U16    uint16  `json:"u16"`
	F32    float32 `json:"f32"`
	F      float64 `json:"f"`
	Any    any     `json:"any"`
	Named  named   `json:"named"`
	secret string  //nolint:unused // it must not be decoded

	PS    *string  `json:"ps"`
	PPS   **string `json:"pps"`
	Self  *all     `json:"self"`
	Selfs []all    `json:"selfs"`

	Strings []string                  `json:"strings"`
	Ints    []int32                   `json:"ints"`
	Bytes   []byte                    `json:"bytes"`
	Lists   [][]any                   `json:"lists"`
	Array   [2]int                    `json:"array"`
	M       map[string]string         `json:"m"`
	MAny    map[string]any            `json:"mAny"`
	MTyped  map[typedKey]*small       `json:"mTyped"`
	MInt    map[int]string            `json:"mInt"`
	MBytes  map[string][]byte         `json:"mBytes"`
	Labels2 labels                    `json:"labels2"`
	Deep    map[string]map[string]any `json:"deep"`

	Time     metav1.Time          `json:"time"`
	PTime    *metav1.Time         `json:"pTime"`
	Micro    metav1.MicroTime     `json:"micro"`
	Quantity resource.Quantity    `json:"quantity"`
	Port     intstr.IntOrString   `json:"port"`
	Raw      runtime.RawExtension `json:"raw"`
	RawJSON  json.RawMessage      `json:"rawJSON"`
	Number   json.Number          `json:"number"`
	Text     upper                `json:"text"`
	Texts    map[upper]int        `json:"texts"`
	Quoted   quoted               `json:"quoted"`
	Twice    twice                `json:"twice"`
	Private  private              `json:"private"`
	Object   runtime.Object       `json:"object"`
	UID      types.UID            `json:"uid"`
}

type (
	small    struct{ A, B int }
	typedKey string
	labels   map[string]string
	named    any
	promoted struct{ P string }
	private  struct{ promoted }
	quoted   struct {
		N int `json:"n,string"`
	}
	twice struct {
		small
		A string
	}
	// loose has a type without a name, with a method that the reference decoder does not see.
	loose struct {
		At struct{ time.Time }  `json:"at"`
		P  *struct{ time.Time } `json:"p"`
	}
	upper string
	// malleable has the kinds of fields that do not call methods.
	malleable struct {
		S       string            `json:"s"`
		I       int               `json:"i"`
		B       *bool             `json:"b"`
		Any     any               `json:"any"`
		M       map[string]string `json:"m"`
		Strings []string          `json:"strings"`
		Self    *malleable        `json:"self"`
		Selfs   []malleable       `json:"selfs"`
	}
)

func (u *upper) UnmarshalText(text []byte) error {
	*u = upper(strings.ToUpper(string(text)))
	return nil
}

// targets are the types that inputs are decoded into.
var targets = []func() any{
	func() any { return new(map[string]any) },
	func() any { return new(any) },
	func() any { return new(all) },
	func() any { return new(corev1.Pod) },
	func() any { return new(metav1.ObjectMeta) },
	func() any { return new(loose) },
	func() any { return new([]string) },
	func() any { return new(json.RawMessage) },
}

// check decodes a text with both decoders into each type.
func check(t *testing.T, text []byte) {
	t.Helper()
	checkInto(t, text, targets)
}

// checkInto is check for some types. Malformed text must only not panic: objects do not have it.
func checkInto(t *testing.T, text []byte, targets []func() any) {
	t.Helper()
	if !jsontext.Value(text).IsValid(scan.Options...) {
		_ = jsondecode.Unmarshal(text, new(map[string]any)) // what it returns is undefined
		_ = jsondecode.Unmarshal(text, new(malleable))
		return
	}
	for _, target := range targets {
		got, want := target(), target()
		gotErr, wantErr := jsondecode.Unmarshal(text, got), utiljson.Unmarshal(text, want)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%T from %q:\n%#v, %v, want\n%#v, %v", got, text, got, gotErr, want, wantErr)
		}
	}
}

// corpus has the inputs on which JSON decoders differ.
var corpus = map[string][]string{
	"letter case": {
		`{"S":"1","s":"2"}`, `{"KIND":"x","Kind":"y","kind":"z"}`, `{"bare":"1","Bare":"2"}`,
		`{"MetaData":{"name":"a"}}`,
		`{"metadata":{"Name":"a","resourceversion":"1","resourceVersion":"2"}}`, `{"\u017f":"long s","K":"Kelvin"}`,
	},
	"names twice": {
		`{"s":"1","s":"2"}`, `{"m":{"a":"1"},"m":{"b":"2"}}`, `{"m":{"a":"1","a":"2"}}`,
		`{"mAny":{"a":{"b":1},"a":{"c":2}}}`,
		`{"selfs":[{"s":"1","b":true}],"selfs":[{"i":1}]}`, `{"self":{"s":"1"},"self":{"i":2}}`,
		`{"ps":"1","ps":null}`,
		`{"any":{"a":1},"any":{"b":2}}`, `{"unknown":1,"unknown":2}`, `{"s":"1","\u0073":"2"}`,
		`{"mTyped":{"a":{"A":1},"a":{"B":2}}}`,
	},
	"null": {
		`null`,
		`{"s":null,"b":null,"i":null,"f":null,"any":null,"named":null,"ps":null,"pps":null,"self":null,"selfs":null}`,
		`{"strings":[null],"ints":[null,1],"bytes":null,"lists":[null,[null]],"array":[null]}`,
		`{"m":{"a":null},"mTyped":{"a":null}}`,
		`{"time":null,"pTime":null,"micro":null,"quantity":null,"port":null,"raw":null}`,
		`{"rawJSON":null,"number":null,"text":null}`,
		`{"metadata":null,"object":null,"quoted":null,"quoted":{"n":null},"deep":{"a":null}}`,
		`{"m":null,"mAny":null,"mInt":null}`,
	},
	"numbers": {
		`{"any":9223372036854775807}`, `{"any":9223372036854775808}`, `{"any":-9223372036854775809}`, `{"any":1e2}`,
		`{"any":1.0}`,
		`{"any":-0}`, `{"any":-0.0}`, `{"any":1e400}`, `{"any":1e-400}`, `{"any":01}`, `{"any":1.}`, `{"any":.5}`,
		`{"any":+1}`,
		`{"any":-}`, `{"any":1e}`, `{"any":0x1}`, `{"any":1_000}`, `{"any":NaN}`, `{"i":1.0}`, `{"i":1e2}`,
		`{"i8":128}`, `{"i8":-128}`,
		`{"u16":-1}`, `{"u16":65536}`, `{"f32":1e39}`, `{"f32":3.4028235e38}`, `{"f":0.1}`, `{"number":1e400}`,
		`{"number":"1"}`, `{"number":"x"}`,
		`{"any":123456789012345678901234567890}`, `{"i":"1"}`, `{"quoted":{"n":"5"}}`, `{"quoted":{"n":5}}`,
		`{"any":1E5}`, `{"any":1e+5}`,
	},
	"unknown fields": {
		`{"x":{"y":[1,{"z":null}]},"s":"1"}`, `{"Hidden":"1","-":"2","secret":"3"}`, `{"x":"\ud800","s":"1"}`,
		`{"x":"\x"}`, `{"x":"` + "\xff" + `"}`,
		`{"x":[1,]}`, `{"x":{"a":1,}}`, `{"x":tru}`, `{"x":01}`, `{"twice":{"A":1,"B":2}}`, `{"private":{"P":"1"}}`,
	},
	"text": {
		`{"s":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00"}`, `{"s":"\ud800"}`, `{"s":"\ud800\u0041"}`,
		`{"s":"\ude00\ud83d"}`, `{"s":"\u12"}`,
		`{"s":"\'"}`, `{"s":"` + "\x01" + `"}`, `{"s":"` + "\n" + `"}`, `{"s":"` + "\x7f" + `"}`, `{"s":"é€😀"}`,
		`{"s":"` + "\xff\xfe" + `"}`,
		`{"s":"` + "\xed\xa0\x80" + `"}`, `{"` + "\xff" + `":1,"m":{"` + "\xff" + `":"` + "\xff" + `"}}`,
		`{"m":{"\u0061":"1","a":"2"}}`, `{"s":"\u0000"}`,
		`{"any":"\u003c\u003e\u0026\u2028"}`, `{"s":"`, `{"s":"\`, `{"s":"\u`, `{"s":"a` + "\x00" + `b"}`,
		`{"m":{"":""}}`,
	},
	"forms": {
		`{"time":"2026-01-01T00:00:00Z","pTime":"2026-01-01T00:00:00+02:00","micro":"2026-01-01T00:00:00.123456Z"}`,
		`{"time":"yesterday"}`,
		`{"time":1}`, `{"time":"2026-01-01T00:00:00\u005a"}`, `{"time":""}`, `{"quantity":"1Gi"}`, `{"quantity":1}`,
		`{"quantity":"x"}`, `{"port":80}`,
		`{"port":"http"}`, `{"raw":{"kind":"X"}}`, `{"rawJSON": [1, 2 ] }`, `{"text":"abc","texts":{"a":1,"A":2}}`,
		`{"text":1}`, `{"bytes":"AAEC"}`,
		`{"bytes":"!"}`, `{"bytes":[1,2]}`, `{"mInt":{"1":"a","x":"b"}}`, `{"mBytes":{"a":"AA=="}}`,
		`{"array":[1,2,3]}`, `{"object":{}}`,
		`{"at":"2026-01-01T00:00:00Z"}`, `{"p":"2026-01-01T00:00:00Z"}`, `{"at":{"Time":"2026-01-01T00:00:00Z"}}`,
		`{"selfs":[]}`, `{"selfs":{}}`,
		`{"m":[]}`, `{"m":{}}`, `{"s":{}}`, `{"s":[]}`, `{"s":1}`, `{"b":"true"}`, `{"b":1}`, `{"strings":["a",1]}`,
		`{"self":{"self":{"self":{"s":"x"}}}}`,
	},
	"ends": {
		``, ` `, `{`, `}`, `{}`, ` {} `, `{}x`, `{} {}`, `{},`, `[]`, `["a"]`, `"a"`, `1`, `true`, `{}` + "\x00",
		"\ufeff{}", "\x00", `{"s"}`, `{"s":}`, `{"s":1`,
		`{,}`, `{"s":"1",}`, `{"s":"1" "i":1}`, `[1 2]`, `{"s"::"1"}`, "{\"s\"\v:\"1\"}",
		"\t\r\n {\t\"s\"\r:\n\"1\" , \"i\" : 1 }\n", `{1:2}`, `{null:1}`, `{'s':1}`,
		`{"s":"1"}/**/`, `nul`, `nulll`, `{"b":truefalse}`,
	},
	"nesting": {
		strings.Repeat("[", 400) + strings.Repeat("]", 400),
		`{"any":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`,
		`{"x":` + strings.Repeat(`{"x":`, 9998) + `1` + strings.Repeat("}", 9999),
		`{"any":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`,
		strings.Repeat(`{"self":`, 300) + `{}` + strings.Repeat("}", 300), strings.Repeat("[", 300),
	},
}

func TestUnmarshal_corpus(t *testing.T) {
	for name, texts := range corpus {
		t.Run(name, func(t *testing.T) {
			for _, text := range texts {
				check(t, []byte(text))
			}
		})
	}
}

// TestUnmarshal_isFast checks that usual objects are not left to the reference decoder.
func TestUnmarshal_isFast(t *testing.T) {
	pod := wiretest.PodBytes(t, wire.JSON, 1)
	for _, into := range []any{new(map[string]any), new(corev1.Pod), new(metav1.PartialObjectMetadata)} {
		if !jsondecode.Fast(pod, into) {
			t.Errorf("a pod is decoded into %T by the reference decoder", into)
		}
	}
	text := `{"kind":"A","metadata":{"name":"a"},"s":"1","pps":"2","self":{"mTyped":{"a":{"A":1}}},"array":[1],` +
		`"object":null,"twice":{"A":"1"},"time":null,"quantity":1}`
	if !jsondecode.Fast([]byte(text), new(all)) {
		t.Error("a type with fields of all types is decoded by the reference decoder")
	}
	if jsondecode.Fast([]byte(`{"s":"1","s":"2"}`), new(all)) {
		t.Error("a name that occurs twice is decoded")
	}
}

// TestUnmarshal_keepsWhatIsThere checks that a value that is not empty keeps its content.
func TestUnmarshal_keepsWhatIsThere(t *testing.T) {
	got, want := &all{I: 1, M: map[string]string{"a": "b"}}, &all{I: 1, M: map[string]string{"a": "b"}}
	text := []byte(`{"s":"x","m":{"c":"d"}}`)
	wiretest.Must(t, jsondecode.Unmarshal(text, got))
	wiretest.Must(t, utiljson.Unmarshal(text, want))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnmarshal_random compares random texts, each decoded into one of the types. A half
// are damaged, of which most are malformed then.
func TestUnmarshal_random(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("again: -seed=%d -inputs=%d", s, *inputs)
	g := generator{Rand: rand.New(rand.NewPCG(s, 0))}
	pod := wiretest.PodBytes(t, wire.JSON, 1)
	for range *inputs {
		text := g.object(0)
		if g.IntN(20) == 0 {
			text = append([]byte(nil), pod...)
		}
		for g.IntN(2) == 0 && len(text) > 0 {
			switch i := g.IntN(len(text)); g.IntN(3) {
			case 0:
				text[i] = damage[g.IntN(len(damage))]
			case 1:
				text = append(text[:i], text[i+1:]...)
			default:
				j := i + g.IntN(min(20, len(text)-i)+1)
				text = append(text[:j:j], text[i:]...)
			}
		}
		i := g.IntN(len(targets))
		checkInto(t, text, targets[i:i+1])
	}
}

// damage are the bytes that well-formed text is changed into.
const damage = "\"\\{}[]:,0-.eEnut \x00\xff\xc3A"

// generator makes random JSON with the names of the targets' fields.
type generator struct{ *rand.Rand }

var names = func() (all []string) {
	seen := map[reflect.Type]bool{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			add(t.Elem())
		case reflect.Struct:
			for i := 0; !seen[t] && i < t.NumField(); i++ {
				name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
				all = append(all, name)
			}
			if !seen[t] {
				seen[t] = true
				for i := range t.NumField() {
					add(t.Field(i).Type)
				}
			}
		}
	}
	for _, target := range targets {
		add(reflect.TypeOf(target()))
	}
	return append(all, "A", "B", "Bare", "x", "", "a", "b")
}()

var frequent = strings.Fields("s i any m mAny self selfs strings metadata spec mTyped f")

func (g generator) name(i int) string {
	if i < 2 && g.IntN(2) == 0 {
		return frequent[g.IntN(len(frequent))]
	}
	return names[g.IntN(len(names))]
}

func (g generator) object(depth int) []byte {
	out := []byte{'{'}
	for i := range g.IntN(6) {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "%q:", g.name(depth))
		out = append(out, g.value(depth+1)...)
	}
	return append(out, '}')
}

func (g generator) value(depth int) []byte {
	kind := g.IntN(12)
	if depth > 5 {
		kind = 4 + g.IntN(8)
	}
	switch kind {
	case 0, 1, 2:
		return g.object(depth)
	case 3:
		out := []byte{'['}
		for i := range g.IntN(4) {
			if i > 0 {
				out = append(out, ", "...)
			}
			out = append(out, g.value(depth+1)...)
		}
		return append(out, ']')
	case 4:
		return []byte("null")
	case 5:
		return []byte([]string{"true", "false"}[g.IntN(2)])
	case 6, 7:
		return []byte([]string{
			"0", "-0", "1", "-1", "127", "128", "65535", "2147483648", "9223372036854775808", "1.5", "1e3", "1E-2",
			"1e999", "0.1",
		}[g.IntN(14)])
	case 8:
		return []byte([]string{
			`"2026-01-01T00:00:00Z"`, `"1Gi"`, `"AAEC"`, `"\u00e9\n"`, `"\ud83d\ude00"`, `"\ud83d"`, `"é"`,
			"\"\xff\"", `"\\\""`, `""`,
		}[g.IntN(10)])
	default:
		return fmt.Appendf(nil, "%q", names[g.IntN(len(names))])
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, texts := range corpus {
		for _, text := range texts {
			if len(text) < 1000 {
				f.Add([]byte(text))
			}
		}
	}
	f.Add(wiretest.PodBytes(f, wire.JSON, 1))
	f.Fuzz(check)
}

// BenchmarkUnmarshal decodes pods that are not all the same.
func BenchmarkUnmarshal(b *testing.B) {
	var pods [100][]byte
	for i := range pods {
		pods[i] = wiretest.PodBytes(b, wire.JSON, i)
	}
	decoders := map[string]func([]byte, any) error{"fast": jsondecode.Unmarshal, "reference": utiljson.Unmarshal}
	for _, name := range []string{"fast", "reference"} {
		for _, target := range []func() any{targets[0], targets[3]} {
			b.Run(fmt.Sprintf("%s/%T", name, target()), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if err := decoders[name](pods[i%len(pods)], target()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
