// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/transcode"
)

// edgeTypes are types that together have values of all forms.
var edgeTypes = map[string]reflect.Type{
	"pod":      podType,
	"config":   typeOf(corev1.SchemeGroupVersion.WithKind("ConfigMap")),
	"secret":   typeOf(corev1.SchemeGroupVersion.WithKind("Secret")),
	"node":     typeOf(corev1.SchemeGroupVersion.WithKind("Node")),
	"service":  typeOf(corev1.SchemeGroupVersion.WithKind("Service")),
	"revision": typeOf(appsv1.SchemeGroupVersion.WithKind("ControllerRevision")),
	"lease":    typeOf(coordinationv1.SchemeGroupVersion.WithKind("Lease")),
	"access":   typeOf(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")),
}

// bytesField returns a field that is bytes, a string, or a message of parts.
func bytesField(number uint64, parts ...string) string {
	value := strings.Join(parts, "")
	b := binary.AppendUvarint(nil, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return string(b) + value
}

func intField(number, value uint64) string {
	b := binary.AppendUvarint(nil, number<<3)
	return string(binary.AppendUvarint(b, value))
}

func mapEntry(number uint64, key, value string) string {
	return bytesField(number, bytesField(1, key), bytesField(2, value))
}

// edges returns rare or malformed messages, by kind.
func edges() map[string][]string {
	meta := func(parts ...string) string { return bytesField(1, parts...) }
	spec := func(parts ...string) string { return bytesField(2, parts...) }
	all := map[string][]string{}
	add := func(kind string, raw ...string) { all[kind] = append(all[kind], raw...) }

	texts := []string{
		"", "a", "\x00\x01\x1f\x7f", "\b\f\n\r\t\v", `"\/`, "<a href='x'>&amp;</a>", "\u2028\u2029\u2027", "é日本😀",
		"\xff", "a\xffb", "\xe2\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\ufffd",
	}
	for _, text := range texts {
		add("pod", meta(bytesField(1, text)), meta(mapEntry(11, text, text)), spec(bytesField(20, bytesField(6, text))))
		add("config", bytesField(2, bytesField(1, text)), mapEntry(3, "k", text), mapEntry(3, text, ""))
		add("secret", mapEntry(2, text, text))
	}
	// Repeated fields: scalars, messages, maps, and lists whose parts are not contiguous.
	name, other := meta(bytesField(1, "a"), mapEntry(12, "x", "1")),
		meta(bytesField(1, "b"), mapEntry(12, "a", "2"), mapEntry(12, "x", "3"))
	container, volume := bytesField(2, bytesField(1, "c")),
		bytesField(1, bytesField(1, "v"), bytesField(2, bytesField(1, bytesField(1, "/p"))))
	add("pod", name+other, name+name+other, name+meta(), meta()+name, meta(bytesField(1, "a"), bytesField(1, "")),
		spec(container, volume, container, volume), spec(container)+name+spec(volume)+spec(container),
		spec(bytesField(1, bytesField(2, bytesField(1)), bytesField(2, bytesField(1, bytesField(1, "/p"))))),
		spec(bytesField(14, bytesField(6, "")), bytesField(14)),
		spec(bytesField(14, bytesField(9)), intField(11, 1), intField(11, 0)),
		name[:len(name)-1]+other, meta("\x0a\x05ab")+meta("abc"))
	// Times.
	for _, seconds := range []int64{
		0, 1, -1, 1.7e9, -62135596800, -62135596801, 253402300799, 253402300800, math.MaxInt64, math.MinInt64,
	} {
		for _, nanos := range []string{
			"", intField(2, 1), intField(2, 999999999), intField(2, math.MaxUint64), intField(2, 1<<33), bytesField(2),
			intField(3, 1), intField(1, 5),
		} {
			moment := intField(1, uint64(seconds)) + nanos
			add("pod", meta(bytesField(8, moment)), meta(bytesField(9, moment)),
				meta(bytesField(8, moment), bytesField(8)), meta(bytesField(8), bytesField(8, moment)))
			add("lease", spec(bytesField(3, moment)), spec(bytesField(3, moment), bytesField(3)))
		}
	}
	add("pod", meta(bytesField(8)), meta(bytesField(9)), meta(bytesField(8, "\x08")), bytesField(3, bytesField(7)))
	add("lease", spec(bytesField(3)), spec(bytesField(4, intField(2, 1500))))
	// Numbers.
	for _, n := range []uint64{0, 1, 127, 128, 1 << 31, 1 << 32, 1<<32 + 1, math.MaxUint64} {
		add("pod", meta(intField(7, n)), spec(intField(4, n), intField(5, n), intField(11, n), intField(25, n)),
			spec(bytesField(2, bytesField(6, intField(2, n), intField(3, n)))),
			spec(bytesField(14, intField(4, n), intField(4, 2))),
			spec(bytesField(14, bytesField(4, string(binary.AppendUvarint(nil, n)), "\x05"))))
		for _, kind := range []uint64{0, 1, 2, n} {
			port := spec(bytesField(1, bytesField(4, intField(1, kind), intField(2, n), bytesField(3, "http"))))
			add("service", port, spec(
				bytesField(1, bytesField(4, intField(1, kind)), bytesField(4, bytesField(3, "x"))),
			))
		}
	}
	// Quantities and embedded JSON.
	for _, q := range []string{
		"", "0", "-0", "1", "1.5", "1.5Gi", "1000", "1000m", "1500m", "1024Mi", "1025Mi", "999Ti", "1Pi", "1e3", "1E",
		"+1", " 1", "1 ", "x", "0.1", "00", "1K", "9223372036854775807", "99999999999999999999",
	} {
		status := func(quantity string) string { return bytesField(3, mapEntry(1, "cpu", quantity)) }
		add("node", status(bytesField(1, q)), status(bytesField(1, q, "")+bytesField(1, "1")),
			status(bytesField(1, q))+status(bytesField(1, "2")), status(bytesField(1, q)+intField(2, 1)))
	}
	add("node", bytesField(3, mapEntry(1, "cpu", "")), bytesField(3, mapEntry(1, "cpu", bytesField(2, "x"))))
	for _, text := range []string{
		"", "{}", " {}", "{} ", "{ }", "null", "[]", "[1]", "1", `"a"`, "true", `{"a":1}`, `{"a":1.5}`, `{"a":-0}`,
		`{"a":01}`, `{"a":1e3}`, `{"a":-}`, `{"a":[1,true,false,null,{"b":"c"}]}`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1}x`, `{"a":[}`, `{"a":[1}]`, `{"a`, `{"a":"b`, `{"a":"\`,
		`{"a":"\u00e9"}`, `{"a":"\x"}`, `{"a":"<&>"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\u2028\"}", "{\"a\":\"é\"}",
		"{\"a\":\"\n\"}",
		`{"a":1,"a":2}`, `{"a": 1}`, "\xbf\xff", "\xa0", strings.Repeat(`{"a":`, 150) + "1" + strings.Repeat("}", 150),
		strings.Repeat(`{"a":[`, 60) + strings.Repeat("]}", 60), strings.Repeat(`{"a":`, 90),
	} {
		add("revision", bytesField(2, bytesField(1, text)), bytesField(2, bytesField(1, text), bytesField(1, "{}")),
			bytesField(2, intField(2, 1), bytesField(1, text)))
		add("pod", meta(bytesField(17, bytesField(7, bytesField(1, text)))))
	}
	// Lists that are messages.
	extra := func(entry string) string { return spec(bytesField(5, bytesField(1, "k"), bytesField(2, entry))) }
	add("access", extra(""), extra(bytesField(1, "a")), extra(bytesField(1, "a")+bytesField(1)), extra(intField(1, 1)),
		extra(bytesField(2, "x")), extra(bytesField(1, "a"))+extra(bytesField(1, "b")), extra("\x0a\x05"))
	// Map entries that no encoder writes.
	for _, entry := range []string{"", bytesField(1, "k"), bytesField(2, "v"), bytesField(2, "v") + bytesField(1, "k"),
		bytesField(1, "k") + bytesField(1, "l") + bytesField(2, "v"),
		bytesField(1, "k") + bytesField(2, "v") + bytesField(2, "w"),
		bytesField(1, "k") + bytesField(2, "v") + bytesField(3, "w"), bytesField(1, "k") + intField(2, 2),
		bytesField(1, "k") + "\x12\x7fv", "\x0a\x03k"} {
		add("config", bytesField(2, entry), bytesField(2, entry)+bytesField(2, "\x0a\x01a\x12\x01b"),
			bytesField(3, entry), bytesField(3, entry)+strings.Repeat("\x20\x01", 10))
		add("node", bytesField(3, bytesField(1, entry)))
	}
	add("config", mapEntry(2, "b", "1")+mapEntry(2, "a", "2")+mapEntry(2, "b", "3")+mapEntry(2, "c", "4"),
		mapEntry(2, "a", "1")+intField(4, 1)+mapEntry(2, "a", "2")+intField(4, 0))
	// Unknown and malformed fields.
	add("pod", intField(99, 7), bytesField(99, "x"), bytesField(1<<20, "x"), "\x9b\x06\x08\x01\x9c\x06", "\x9b\x06",
		"\x9c\x06", "\x99\x06\x01\x02\x03\x04\x05\x06\x07\x08", "\x9d\x06\x01\x02\x03\x04", "\x9d\x06\x01",
		"\x02\x00", "\x00\x01", "\x07\x00", "\x0e", "\x0f\x00", "\x08\x01", "\x09", "\x0b\x0c", "\x0a", "\x0a\x80",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x8a\x80\x80\x80\x80\x80\x80\x80\x80\x00\x00", "\x0a\x80\x00", meta("\x08\x01"), meta("\x38"),
		meta("\x3a\x00"), spec("\x12\x01\x0a"), "\xfa\xff\xff\xff\xff\x01\x00")
	return all
}

func TestAppendJSON_atTheEdges(t *testing.T) {
	good, bad := 0, 0
	r := specimen.Rand(t)
	for name, messages := range edges() {
		for _, raw := range messages {
			// Two messages joined, and messages with some bytes changed.
			both := raw + messages[r.Intn(len(messages))]
			sameJSON(t, edgeTypes[name], []byte(both))
			if both != "" {
				sameJSON(t, edgeTypes[name], spoil(r, []byte(both)))
			}
			if sameJSON(t, edgeTypes[name], []byte(raw)) {
				good++
			} else {
				bad++
			}
		}
	}
	t.Logf("%d messages are good, %d are not", good, bad)
	if good < 100 || bad < 100 {
		t.Errorf("%d messages are good, %d are not", good, bad)
	}
}

// TestAppendJSON_ofEveryPiece truncates a pod at every offset, and changes every byte.
func TestAppendJSON_ofEveryPiece(t *testing.T) {
	raw := podMessage(t, 1)
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < len(raw); i += step {
		sameJSON(t, podType, raw[:i])
		raw[i] ^= 1 << (i % 8)
		sameJSON(t, podType, raw)
		raw[i] ^= 1 << (i % 8)
	}
}

func TestAppendJSON_ofNoMessage(t *testing.T) {
	for _, typ := range []reflect.Type{
		nil, podType.Elem(), reflect.TypeFor[*metav1.WatchEvent]().Elem(), reflect.TypeFor[*string](),
	} {
		if b, err := transcode.AppendJSON([]byte("before"), typ, podMessage(t, 1)); err == nil ||
			string(b) != "before" {
			t.Errorf("%v: %s, %v", typ, b, err)
		}
	}
}

func FuzzAppendJSON(f *testing.F) {
	names := []string{"pod", "config", "secret", "node", "service", "revision", "lease", "access"}
	all := edges()
	for i, name := range names {
		// Too many seeds slow down the start.
		for at := 0; at < len(all[name]); at += 10 {
			f.Add(uint8(i), []byte(all[name][at]))
		}
	}
	f.Add(uint8(0), podMessage(f, 1))
	f.Fuzz(func(t *testing.T, i uint8, raw []byte) {
		sameJSON(t, edgeTypes[names[int(i)%len(names)]], raw)
	})
}

// gauge is a message that cannot have a plan: it contains itself, and a number of a type
// that Kubernetes does not use. It decodes only its first field.
type gauge struct {
	Level float64 `json:"level" protobuf:"fixed64,1,opt,name=level"`
	Next  *gauge  `json:"next,omitempty" protobuf:"bytes,2,opt,name=next"`
}

func (g *gauge) Unmarshal(raw []byte) error {
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) != 9 || raw[0] != 1<<3|1:
		return errors.New("no gauge")
	case raw[8] == 0x13:
		panic("no such level")
	}
	g.Level = math.Float64frombits(binary.LittleEndian.Uint64(raw[1:]))
	return nil
}

// shout has a MarshalJSON that does not match its fields.
type shout struct {
	Text string `json:"text" protobuf:"bytes,1,opt,name=text"`
}

func (s *shout) Unmarshal(raw []byte) error {
	if len(raw) > 2 {
		s.Text = string(raw[2:])
	}
	return nil
}

func (s *shout) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(s.Text)) }

// machine has members that must be decoded next to others that need not.
type machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Gauge             gauge   `json:"gauge" protobuf:"bytes,2,opt,name=gauge"`
	Spare             *gauge  `json:"spare" protobuf:"bytes,3,opt,name=spare"`
	Shouts            []shout `json:"shouts,omitempty" protobuf:"bytes,4,rep,name=shouts"`
}

func (m *machine) Unmarshal(raw []byte) error {
	return eachField(raw, func(number byte, value []byte) error {
		switch number {
		case 1:
			return m.ObjectMeta.Unmarshal(value)
		case 2:
			return m.Gauge.Unmarshal(value)
		case 3:
			m.Spare = &gauge{}
			return m.Spare.Unmarshal(value)
		case 4:
			m.Shouts = append(m.Shouts, shout{})
			return m.Shouts[len(m.Shouts)-1].Unmarshal(value)
		}
		return nil
	})
}

func eachField(raw []byte, call func(number byte, value []byte) error) error {
	for len(raw) > 0 {
		n, size := binary.Uvarint(raw[1:])
		from := 1 + size
		if raw[0]&7 != 2 || size <= 0 || uint64(len(raw)-from) < n {
			return errors.New("no fields")
		}
		if err := call(raw[0]>>3, raw[from:from+int(n)]); err != nil {
			return err
		}
		raw = raw[from+int(n):]
	}
	return nil
}

// crate is a machine whose label has no protobuf tag.
type crate struct {
	machine
	Label string `json:"label"`
}

// Strap is embedded by pointer, and its members are inlined.
type Strap struct {
	Width string `json:"width" protobuf:"bytes,1,opt,name=width"`
}

func (s *Strap) Unmarshal(raw []byte) error {
	return eachField(raw, func(_ byte, value []byte) error { s.Width = string(value); return nil })
}

// cargo holds a shout. In a map it is not addressable, so the shout cannot marshal itself.
type cargo struct {
	Shout shout `json:"shout" protobuf:"bytes,1,opt,name=shout"`
}

func (c *cargo) Unmarshal(raw []byte) error {
	return eachField(raw, func(_ byte, value []byte) error { return c.Shout.Unmarshal(value) })
}

// pallet has tags that Kubernetes does not use.
type pallet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata" protobuf:"bytes,1,opt,name=metadata"`
	*Strap            `json:",inline" protobuf:"bytes,2,opt,name=strap"`
}

func (p *pallet) Unmarshal(raw []byte) error {
	return eachField(raw, func(number byte, value []byte) error {
		if number != 2 {
			return p.ObjectMeta.Unmarshal(value)
		}
		p.Strap = &Strap{}
		return p.Strap.Unmarshal(value)
	})
}

// load has cargo in a map.
type load struct {
	metav1.TypeMeta `json:",inline"`
	Cargo           map[string]cargo `json:"cargo" protobuf:"bytes,1,rep,name=cargo"`
}

func (l *load) Unmarshal(raw []byte) error {
	return eachField(raw, func(_ byte, value []byte) error {
		l.Cargo = map[string]cargo{}
		var c cargo
		if err := c.Unmarshal(value[5:]); err != nil {
			return err
		}
		l.Cargo[string(value[2:3])] = c
		return nil
	})
}

func TestAppendJSON_ofTagsThatKubernetesHasNot(t *testing.T) {
	pallets := reflect.TypeFor[*pallet]()
	loads := reflect.TypeFor[*load]()
	for _, raw := range []string{
		"", bytesField(2), bytesField(2, bytesField(1, "w")), bytesField(1, bytesField(1, "n")),
	} {
		if !sameJSON(t, pallets, []byte(raw)) {
			t.Errorf("%x has no JSON", raw)
		}
	}
	for _, raw := range []string{"", mapEntry(1, "k", bytesField(1, bytesField(1, "hey")))} {
		if !sameJSON(t, loads, []byte(raw)) {
			t.Errorf("%x has no JSON", raw)
		}
	}
}

func TestAppendJSON_ofTypesWithoutAPlan(t *testing.T) {
	machines, crates := reflect.TypeFor[*machine](), reflect.TypeFor[*crate]()
	if diff := cmp.Diff(map[string]bool{
		"transcode_test.gauge": true, "transcode_test.shout": true,
	}, transcode.Decoded(machines)); diff != "" {
		t.Errorf("what is decoded of a machine (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"*transcode_test.crate": true}, transcode.Decoded(crates)); diff != "" {
		t.Errorf("what is decoded of a crate (-want +got):\n%s", diff)
	}
	level := func(last byte) string { return "\x09\x00\x00\x00\x00\x00\x00\xf0" + string(last) }
	for _, raw := range []string{
		"", bytesField(2, level('?')), bytesField(3), bytesField(3, level('@')),
		bytesField(4, "--hey <you>") + bytesField(1, bytesField(1, "n")) + bytesField(4),
	} {
		quickJSON(t, machines, []byte(raw))
		sameJSON(t, crates, []byte(raw))
	}
	if !sameJSON(t, machines, []byte(bytesField(2, level('?'))+bytesField(2, level('@')))) {
		t.Error("a member that comes again is refused")
	}
	for name, raw := range map[string]string{"error": "x", "panic": level(0x13), "infinity": level(0x7f)} {
		if sameJSON(t, machines, []byte(bytesField(2, raw))) {
			t.Errorf("there is JSON in spite of an %s", name)
		}
	}
}
