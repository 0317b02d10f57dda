// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan is how the message of a Go type becomes JSON. It never changes, and no plan
// contains itself: how deep messages are in each other is bounded by their types.
type plan struct {
	// fields are those of the Go type, in its order.
	fields []field
	// index is of fields by their numbers.
	index []place
	// always are the fields that JSON shows although the message has not got them.
	always uint64
	// foreign says that something in it must be decoded.
	foreign bool
	// names are those of the members.
	names []string
	// visits are for a walk that only looks for unknown fields, by their numbers.
	visits []visit
}

// place says where a field is in a plan, and which wire type it must have.
type place struct {
	at, wire uint8
	known    bool
}

// maxPlanned is how many fields a plan may have: a bit is kept for each.
const maxPlanned = 64

// maxNumber is above all field numbers of a plan.
const maxNumber = 1 << 10

// field is one of a plan.
type field struct {
	// name is that of the member, behind a comma and before a colon.
	name   []byte
	number int32
	wire   uint8
	form   form
	// list and mapped are of what form says. inline adds the members of the message to
	// those of the one that it is in.
	list, mapped, inline bool
	// omitEmpty and omitZero leave out the values that can be left out: what a pointer
	// points to cannot.
	omitEmpty, omitZero bool
	// plan is that of a message.
	plan *plan
	// absent is the whole member if the message has not got the field, empty if there
	// is none then.
	absent []byte
	// zero is the value of an empty message.
	zero []byte
	// foreign is the Go type of a value, to decode it where that must be.
	foreign reflect.Type
}

// form is how a value is written.
type form uint8

const (
	formNone form = iota
	formString
	formBytes
	formBool
	formInt32
	formInt64
	// formMessage has a plan.
	formMessage
	// formStrings is a message that stands for a list of strings, which can be nil.
	formStrings
	formTime
	formMicroTime
	formQuantity
	formIntOrString
	// formRaw is a message with JSON in it.
	formRaw
	// formForeign is a message of a type that no plan can be made of.
	formForeign
)

// forms are the types that write their JSON themselves, in a way that is known here.
var forms = map[reflect.Type]form{
	reflect.TypeFor[metav1.Time]():          formTime,
	reflect.TypeFor[metav1.MicroTime]():     formMicroTime,
	reflect.TypeFor[resource.Quantity]():    formQuantity,
	reflect.TypeFor[intstr.IntOrString]():   formIntOrString,
	reflect.TypeFor[metav1.FieldsV1]():      formRaw,
	reflect.TypeFor[runtime.RawExtension](): formRaw,
}

var plans sync.Map // of reflect.Type to *plan

// planOf is nil for types that must be decoded.
func planOf(t reflect.Type) *plan { return planWithin(t, nil) }

// planWithin is planOf for a type within others. One that is within itself is
// decoded there.
func planWithin(t reflect.Type, within []reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if slices.Contains(within, t) {
		return nil
	}
	p := newPlan(t, append(within[:len(within):len(within)], t))
	plans.Store(t, p)
	return p
}

func newPlan(t reflect.Type, within []reflect.Type) *plan {
	if t.Kind() != reflect.Struct || !isMessage(t) || marshalsItself(t) {
		return nil
	}
	p := new(plan)
	for i := range t.NumField() {
		if !p.add(t.Field(i), within) {
			return nil
		}
	}
	names := slices.Sorted(slices.Values(p.names))
	if len(p.fields) > maxPlanned || len(slices.Compact(names)) != len(p.names) {
		return nil // encoding/json has rules for members of the same name
	}
	for i := range p.fields {
		f := &p.fields[i]
		if len(f.absent) > 0 {
			p.always |= 1 << i
		}
		if f.number == 0 {
			continue
		}
		if n := int(f.number) + 1 - len(p.index); n > 0 {
			p.index = append(p.index, make([]place, n)...)
		}
		if p.index[f.number].known {
			return nil
		}
		p.index[f.number] = place{at: uint8(i), wire: f.wire, known: true}
	}
	p.plotVisits()
	return p
}

// add adds a field of the Go type, and reports whether it understands it.
func (p *plan) add(of reflect.StructField, within []reflect.Type) bool {
	kind, rest, _ := strings.Cut(of.Tag.Get("protobuf"), ",")
	text, _, _ := strings.Cut(rest, ",")
	number, _ := strconv.Atoi(text)
	name, options, _ := strings.Cut(of.Tag.Get("json"), ",")
	if of.Tag.Get("json") == "-" || !of.IsExported() {
		// Only what is not in the message either can be left out: the generated code
		// would look at it.
		return number == 0 && !of.Anonymous
	}
	f := field{number: int32(number)}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		case "string":
			return false
		}
	}
	f.inline = of.Anonymous && name == ""
	if !f.inline && number == 0 || number < 0 || number >= maxNumber || !f.shape(of.Type, within) {
		return false
	}
	// Some tags say bytes of a number, which the generated code does not care about.
	if number != 0 && kind != "bytes" && kind != "varint" {
		return false
	}
	if f.inline && (f.form != formMessage || of.Type.Kind() != reflect.Struct) {
		return false
	}
	if name == "" {
		name = of.Name
	}
	return p.finish(f, name, of.Type)
}

// finish adds a field whose shape is known.
func (p *plan) finish(f field, name string, t reflect.Type) bool {
	empty, err := json.Marshal(reflect.New(t).Interface())
	if err != nil {
		return false
	}
	p.foreign = p.foreign || f.hasForeign()
	if f.inline {
		p.names = append(p.names, f.plan.names...)
		if members := empty[1 : len(empty)-1]; len(members) > 0 {
			f.absent = append([]byte{','}, members...)
		}
		p.fields = append(p.fields, f)
		return true
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return false
	}
	p.names = append(p.names, name)
	f.name = append(append([]byte{','}, quoted...), ':')
	structure := t.Kind() == reflect.Struct // which is never empty
	if f.omitZero && (f.form != formTime || !structure) {
		return false
	}
	if !f.omitZero && (!f.omitEmpty || structure) {
		f.absent = slices.Concat(f.name, empty)
	}
	// A pointer to what is empty is not empty, and so is no list and no map that the
	// message has.
	f.omitEmpty = f.omitEmpty && !structure && t.Kind() != reflect.Pointer
	p.fields = append(p.fields, f)
	return true
}

// shape says what the values of a type are in a message.
func (f *field) shape(t reflect.Type, within []reflect.Type) bool {
	switch {
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
		return t.Kind() != reflect.Slice && f.element(t, within)
	case t.Kind() == reflect.Map && !marshalsItself(t):
		f.mapped = true
		// What a map holds has no address, so some that write themselves would not.
		return t.Key().Kind() == reflect.String && f.element(t.Elem(), within) && f.wire == wireBytes && !f.hasForeign()
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !isMessage(t) && !marshalsItself(t):
		f.list = true
		if t = t.Elem(); t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		return f.element(t, within) && f.form != formStrings
	default:
		return f.element(t, within)
	}
}

// element says what a value of a type is, which is not itself a list or a map.
func (f *field) element(t reflect.Type, within []reflect.Type) bool {
	f.wire = wireBytes
	f.foreign = t
	if f.form = forms[t]; f.form != formNone {
		return f.setZero(t)
	}
	if t.Kind() == reflect.Struct && isMessage(t) {
		f.form = formForeign
		if f.plan = planWithin(t, within); f.plan != nil {
			f.form = formMessage
		}
		return f.setZero(t)
	}
	if marshalsItself(t) {
		return false
	}
	switch t.Kind() {
	case reflect.String:
		f.form = formString
	case reflect.Slice:
		switch {
		case t.Elem().Kind() == reflect.Uint8 && !isMessage(t) && !marshalsItself(t.Elem()):
			f.form = formBytes
		case t.Elem().Kind() == reflect.String && isMessage(t) && !marshalsItself(t.Elem()):
			f.form = formStrings
		}
	case reflect.Bool:
		f.form, f.wire = formBool, wireVarint
	case reflect.Int32:
		f.form, f.wire = formInt32, wireVarint
	case reflect.Int64:
		f.form, f.wire = formInt64, wireVarint
	}
	return f.form != formNone
}

func (f *field) hasForeign() bool { return f.form == formForeign || f.plan != nil && f.plan.foreign }

func (f *field) setZero(t reflect.Type) bool {
	var err error
	f.zero, err = json.Marshal(reflect.New(t).Interface())
	return err == nil
}

// isMessage reports whether the generated code has a message for a type.
func isMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]())
}

// marshalsItself reports whether encoding/json leaves a type to itself.
func marshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
