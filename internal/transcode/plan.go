// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// plan describes how the message of a Go type is written as JSON. It is immutable. No
// plan contains itself, so the nesting of messages is bounded by their types.
type plan struct {
	// fields are the fields of the Go type, in its order.
	fields []field
	// index finds a field by its number.
	index []place
	// always is the bit set of the fields that JSON has even if the message lacks them.
	always uint64
	// decodes is set if a value of form formDecoded is somewhere in the message.
	decodes bool
	// names are the names of the JSON members.
	names []string
	// visits is the index for HasUnknownFields.
	visits []visit
}

// place is the position of a field in a plan, and the wire type that it must have.
type place struct {
	at, wire uint8
	known    bool
}

const (
	// maxPlanned is how many fields a plan may have: bit sets have one bit for each.
	maxPlanned = 64
	// maxNumber is the limit below which the field numbers of a plan must be.
	maxNumber = 1 << 10
)

// field is a field of a plan.
type field struct {
	// name is the name of the JSON member, with a comma before and a colon after it.
	name   []byte
	number int32
	wire   uint8
	form   form
	// list is set if the field is a list of values of that form.
	list bool
	// mapped is set if the field is a map of strings to values of that form.
	mapped bool
	// inline is set if the members of the message are written among those of the
	// enclosing message.
	inline bool
	// omitEmpty leaves out empty values, except where a pointer refers to one.
	omitEmpty bool
	// omitZero leaves out the zero time.
	omitZero bool
	// plan is the plan of a value of form formMessage.
	plan *plan
	// absent is the whole JSON member for a message that lacks the field. It is empty
	// if there is no member then.
	absent []byte
	// zero is the JSON of an empty message.
	zero []byte
	// goType is the Go type of a value, for values that must be decoded.
	goType reflect.Type
}

// visit is a field as the search for unknown fields sees it.
type visit struct {
	// plan is the plan of a message. It is nil for values that cannot have unknown
	// fields.
	plan *plan
	// goType is the type of a message without a plan.
	goType reflect.Type
	wire   uint8
	known  bool
	mapped bool
}

// form is the way in which a value is written.
type form uint8

const (
	formNone form = iota
	formString
	formBytes
	formBool
	formInt32
	formInt64
	// formMessage is a message with a plan.
	formMessage
	// formStrings is a message that represents a list of strings. Unlike a list it can
	// be nil in a map.
	formStrings
	formTime
	formMicroTime
	formQuantity
	formIntOrString
	// formRaw is a message that contains JSON.
	formRaw
	// formDecoded is a message whose type has no plan. It is always decoded.
	formDecoded
)

// forms are the types with a MarshalJSON method that this package reproduces.
var forms = map[reflect.Type]form{
	reflect.TypeFor[metav1.Time]():          formTime,
	reflect.TypeFor[metav1.MicroTime]():     formMicroTime,
	reflect.TypeFor[resource.Quantity]():    formQuantity,
	reflect.TypeFor[intstr.IntOrString]():   formIntOrString,
	reflect.TypeFor[metav1.FieldsV1]():      formRaw,
	reflect.TypeFor[runtime.RawExtension](): formRaw,
}

var plans sync.Map // of reflect.Type to *plan

// planOf returns the plan of a struct type. It is nil for types that must be decoded.
func planOf(t reflect.Type) *plan { return planWithin(t, nil) }

// planWithin is [planOf] for a type that is nested in others. A type that is nested in
// itself is decoded there.
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
	if t.Kind() != reflect.Struct || !protobuf.IsMessage(t) || MarshalsItself(t) {
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
		return nil // encoding/json has special rules for members of the same name
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

// plotVisits derives the visits from the fields.
func (p *plan) plotVisits() {
	p.visits = make([]visit, len(p.index))
	for number, of := range p.index {
		if !of.known {
			continue
		}
		f := &p.fields[of.at]
		s := visit{wire: of.wire, known: true, mapped: f.mapped}
		switch f.form {
		case formMessage:
			s.plan = f.plan
		case formDecoded:
			s.goType = f.goType
		}
		p.visits[number] = s
	}
}

// add adds a field of the Go type. It returns false if the field cannot be planned.
func (p *plan) add(of reflect.StructField, within []reflect.Type) bool {
	format, number := protobuf.Tag(of)
	name, options, _ := strings.Cut(of.Tag.Get("json"), ",")
	if of.Tag.Get("json") == "-" || !of.IsExported() {
		// The field can be ignored only if the message does not have it either: the
		// generated code would read it.
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
	// Some tags declare a number as bytes. The generated code ignores that.
	if number != 0 && format != "bytes" && format != "varint" {
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

// finish adds a field whose shape is set.
func (p *plan) finish(f field, name string, t reflect.Type) bool {
	empty, err := json.Marshal(reflect.New(t).Interface())
	if err != nil {
		return false
	}
	p.decodes = p.decodes || f.decodes()
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
	structure := t.Kind() == reflect.Struct // encoding/json never treats one as empty
	if f.omitZero && (f.form != formTime || !structure) {
		return false
	}
	if !f.omitZero && (!f.omitEmpty || structure) {
		f.absent = slices.Concat(f.name, empty)
	}
	// A pointer to an empty value is not empty. Lists and maps that the message has are
	// never empty.
	f.omitEmpty = f.omitEmpty && !structure && t.Kind() != reflect.Pointer
	p.fields = append(p.fields, f)
	return true
}

// shape sets whether the field is a list or a map, and the form of its values. It
// returns false if values of the type cannot be planned.
func (f *field) shape(t reflect.Type, within []reflect.Type) bool {
	switch {
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
		return t.Kind() != reflect.Slice && f.element(t, within)
	case t.Kind() == reflect.Map && !MarshalsItself(t):
		f.mapped = true
		// The values of a map are not addressable, so encoding/json does not call their
		// MarshalJSON if its receiver is a pointer.
		return t.Key().Kind() == reflect.String && f.element(t.Elem(), within) && f.wire == protobuf.TypeBytes &&
			!f.decodes()
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !protobuf.IsMessage(t) && !MarshalsItself(t):
		f.list = true
		t = t.Elem()
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		return f.element(t, within) && f.form != formStrings
	default:
		return f.element(t, within)
	}
}

// element sets the form of a value that is not itself a list or a map. It returns false
// if values of the type cannot be planned.
func (f *field) element(t reflect.Type, within []reflect.Type) bool {
	f.wire = protobuf.TypeBytes
	f.goType = t
	if f.form = forms[t]; f.form != formNone {
		return f.setZero(t)
	}
	if t.Kind() == reflect.Struct && protobuf.IsMessage(t) {
		f.form = formDecoded
		if f.plan = planWithin(t, within); f.plan != nil {
			f.form = formMessage
		}
		return f.setZero(t)
	}
	if MarshalsItself(t) {
		return false
	}
	switch t.Kind() {
	case reflect.String:
		f.form = formString
	case reflect.Slice:
		switch {
		case t.Elem().Kind() == reflect.Uint8 && !protobuf.IsMessage(t) && !MarshalsItself(t.Elem()):
			f.form = formBytes
		case t.Elem().Kind() == reflect.String && protobuf.IsMessage(t) && !MarshalsItself(t.Elem()):
			f.form = formStrings
		}
	case reflect.Bool:
		f.form, f.wire = formBool, protobuf.TypeVarint
	case reflect.Int32:
		f.form, f.wire = formInt32, protobuf.TypeVarint
	case reflect.Int64:
		f.form, f.wire = formInt64, protobuf.TypeVarint
	}
	return f.form != formNone
}

// decodes reports whether some value in the field is always decoded.
func (f *field) decodes() bool { return f.form == formDecoded || f.plan != nil && f.plan.decodes }

// setZero sets the JSON of an empty message.
func (f *field) setZero(t reflect.Type) bool {
	var err error
	f.zero, err = json.Marshal(reflect.New(t).Interface())
	return err == nil
}

// MarshalsItself reports whether a type has a method that encoding/json calls to write
// it.
func MarshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
