// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package transcode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// AppendJSON appends the JSON of a message: byte for byte what encoding/json writes
// for the decoded value, without apiVersion and kind. t is the type of a pointer to
// the Go type of the message. After an error b is returned as it was.
//
// It decodes nothing if the message is in the form in which API servers write it and
// its Go type has a [plan]. Otherwise it decodes the message with the generated code,
// which also decides whether the message is malformed.
func AppendJSON(b []byte, t reflect.Type, raw []byte) ([]byte, error) {
	if t == nil || t.Kind() != reflect.Pointer {
		return b, fmt.Errorf("%v is not a pointer to a message", t)
	}
	t = t.Elem()
	if p := planOf(t); p != nil && len(raw) <= math.MaxInt32 {
		if text, ok := transcode(b, p, raw); ok {
			return text, nil
		}
	}
	text, err := marshalDecoded(t, raw)
	if err != nil {
		return b, err
	}
	return append(b, text...), nil
}

// transcoder holds the buffers for transcoding one message. The messages that enclose
// the one being written each occupy a part of slots and entries.
type transcoder struct {
	slots   []slot
	entries []entry
	// merged holds messages whose field occurred several times, joined.
	merged []byte
}

// slot is the position of a field in its message. Its content is undefined for a field
// that the message does not have.
type slot struct {
	// first is the offset of the field's first tag. from and to enclose its last value.
	first, from, to int32
	// num is the last value of a number.
	num uint64
}

// entry is an entry of a map.
type entry struct{ key, value []byte }

const (
	// maxMerged is how many bytes of merged messages a pooled transcoder keeps.
	maxMerged = 1 << 20
	// maxEntries is how many map entries a pooled transcoder has room for.
	maxEntries = 16 << 10
)

var transcoders = sync.Pool{New: func() any { return new(transcoder) }}

// transcode appends the JSON of a message. It returns false, and unusable bytes, for a
// message that has to be decoded.
func transcode(b []byte, p *plan, raw []byte) ([]byte, bool) {
	t := transcoders.Get().(*transcoder)
	b, ok := t.message(b, p, raw)
	t.free()
	return b, ok
}

func (t *transcoder) free() {
	if cap(t.merged) > maxMerged || cap(t.entries) > maxEntries {
		return
	}
	clear(t.entries) // after a failure they still refer to the message
	t.slots, t.entries, t.merged = t.slots[:0], t.entries[:0], t.merged[:0]
	transcoders.Put(t)
}

func (t *transcoder) message(b []byte, p *plan, raw []byte) ([]byte, bool) {
	at := len(b)
	b, ok := t.members(b, p, raw)
	if len(b) == at {
		return append(b, '{', '}'), ok
	}
	b[at] = '{' // instead of the comma before the first member
	return append(b, '}'), ok
}

// members appends the members of a message's JSON, each after a comma.
func (t *transcoder) members(b []byte, p *plan, raw []byte) ([]byte, bool) {
	base := len(t.slots)
	t.slots = slices.Grow(t.slots, len(p.fields))[:base+len(p.fields)]
	there, again, ok := p.find(t.slots[base:], raw)
	for show := there | p.always; ok && show != 0; show &= show - 1 {
		i := bits.TrailingZeros64(show)
		f := &p.fields[i]
		if there&(1<<i) == 0 {
			b = append(b, f.absent...)
			continue
		}
		// Nested messages may move t.slots to a larger array. The old array keeps its
		// content, so s stays valid.
		s := &t.slots[base+i]
		switch {
		case f.list:
			b, ok = t.list(b, f, raw, s)
		case f.mapped:
			b, ok = t.object(b, f, raw, s)
		case f.form == formString:
			if s.from != s.to || !f.omitEmpty {
				b = appendText(append(b, f.name...), raw[s.from:s.to])
			}
		case f.form <= formInt64:
			b = f.scalar(b, raw, s)
		default:
			b, ok = t.single(b, f, raw, s, again&(1<<i) != 0)
		}
	}
	t.slots = t.slots[:base]
	return b, ok
}

// find fills the slots of the fields that a message has. It returns two bit sets: the
// fields that the message has, and those that occur more than once.
func (p *plan) find(slots []slot, raw []byte) (there, again uint64, ok bool) {
	for at := 0; at < len(raw); {
		first := at
		number := int32(raw[at] >> 3)
		wire := uint8(protobuf.TypeBytes)
		from := at + 2
		num := uint64(0)
		at = shortEnd(raw, first)
		if at == 0 {
			number, wire, from, at, num = fieldAt(raw, first)
			if at < 0 {
				return 0, 0, false
			}
		}
		if int(number) >= len(p.index) || !p.index[number].known {
			continue
		}
		of := p.index[number]
		if wire != of.wire {
			return 0, 0, false
		}
		s, bit := &slots[of.at], uint64(1)<<of.at
		if there&bit == 0 {
			s.first = int32(first)
		}
		again |= there & bit
		there |= bit
		s.from, s.to, s.num = int32(from), int32(at), num
	}
	return there, again, true
}

// shortEnd returns where the field at an offset ends if it is bytes and its tag and its
// length take one byte each, as in most fields. Otherwise it returns 0.
func shortEnd(b []byte, at int) int {
	if at+1 < len(b) && b[at] > 7 && b[at]&0x87 == protobuf.TypeBytes && b[at+1] < 0x80 && int(b[at+1]) <= len(b)-at-2 {
		return at + 2 + int(b[at+1])
	}
	return 0
}

// fieldAt returns the field at an offset. Its value is b[from:to] or num. to is -1 if
// the field is malformed.
func fieldAt(b []byte, at int) (number int32, wire uint8, from, to int, num uint64) {
	if at+1 < len(b) && b[at] > 7 && b[at]&0x87 == protobuf.TypeVarint && b[at+1] < 0x80 {
		return int32(b[at] >> 3), protobuf.TypeVarint, at + 1, at + 2, uint64(b[at+1])
	}
	s := protobuf.Scanner{Data: b, At: at}
	if !s.Next() {
		return 0, 0, 0, -1, 0
	}
	return s.Field, s.Type, s.At - len(s.Value), s.At, s.Number
}

// scalar appends bytes or a number: the last one, if the field occurs several times.
func (f *field) scalar(b, raw []byte, s *slot) []byte {
	if f.form == formBytes {
		if s.from == s.to && f.omitEmpty {
			return b
		}
		return appendBytes(append(b, f.name...), raw[s.from:s.to])
	}
	if f.omitEmpty && (s.num == 0 || f.form == formInt32 && int32(s.num) == 0) {
		return b
	}
	return appendNumber(append(b, f.name...), f.form, s.num)
}

// appendNumber appends an integer or a boolean, which protobuf writes as an integer.
func appendNumber(b []byte, form form, num uint64) []byte {
	switch form {
	case formBool:
		return strconv.AppendBool(b, num != 0)
	case formInt32:
		return strconv.AppendInt(b, int64(int32(num)), 10)
	default:
		return strconv.AppendInt(b, int64(num), 10)
	}
}

func appendBytes(b, value []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, '"'), value)
	return append(b, '"')
}

// single appends a field that holds one message. again is set if the field occurs several
// times.
func (t *transcoder) single(b []byte, f *field, raw []byte, s *slot, again bool) ([]byte, bool) {
	value := raw[s.from:s.to]
	if again {
		var ok bool
		if value, ok = t.merge(raw, f.number); !ok || f.form != formMessage && f.form != formStrings {
			return b, false // the generated code does not merge times, for example
		}
	}
	switch {
	case f.inline && len(value) == 0:
		return append(b, f.absent...), true
	case f.inline:
		return t.members(b, f.plan, value)
	case f.omitEmpty && len(value) == 0:
		return b, true
	}
	at := len(b)
	b, ok := t.value(append(b, f.name...), f, value)
	if f.omitZero && string(b[at+len(f.name):]) == "null" {
		b = b[:at] // the zero time
	}
	return b, ok
}

// merge joins the parts of a message whose field occurs several times. Each part must be
// well-formed; otherwise the end of one would be read as the beginning of the next.
func (t *transcoder) merge(raw []byte, number int32) (whole []byte, ok bool) {
	at := len(t.merged)
	for s := (protobuf.Scanner{Data: raw}); s.Next(); {
		if s.Field != number {
			continue
		}
		part := protobuf.Scanner{Data: s.Value}
		for part.Next() {
		}
		if part.Bad {
			return nil, false
		}
		t.merged = append(t.merged, s.Value...)
	}
	return t.merged[at:], true
}

func (t *transcoder) list(b []byte, f *field, raw []byte, s *slot) ([]byte, bool) {
	b = append(append(b, f.name...), '[')
	ok := true
	for at := int(s.first); ok && at < int(s.to); {
		number := int32(raw[at] >> 3)
		from := at + 2
		to := shortEnd(raw, at)
		num := uint64(0)
		if to == 0 {
			number, _, from, to, num = fieldAt(raw, at)
		}
		at = to
		if number != f.number {
			continue
		}
		if f.wire == protobuf.TypeVarint {
			b = appendNumber(b, f.form, num)
		} else {
			b, ok = t.value(b, f, raw[from:to])
		}
		b = append(b, ',')
	}
	b[len(b)-1] = ']'
	return b, ok
}

// object appends a map, sorted by key as encoding/json does. Of entries with the same
// key the last one is written.
func (t *transcoder) object(b []byte, f *field, raw []byte, s *slot) ([]byte, bool) {
	base, sorted := len(t.entries), true
	for at := int(s.first); at < int(s.to); {
		number, from, to := int32(raw[at]>>3), at+2, shortEnd(raw, at)
		if to == 0 {
			number, _, from, to, _ = fieldAt(raw, at)
		}
		at = to
		if number != f.number {
			continue
		}
		e, ok := parseEntry(raw[from:to])
		if !ok {
			return b, false
		}
		if n := len(t.entries); n > base && bytes.Compare(t.entries[n-1].key, e.key) >= 0 {
			sorted = false
		}
		t.entries = append(t.entries, e)
	}
	if !sorted {
		slices.SortStableFunc(t.entries[base:], func(a, b entry) int { return bytes.Compare(a.key, b.key) })
	}
	b = append(append(b, f.name...), '{')
	ok, end := true, len(t.entries)
	for i := base; ok && i < end; i++ {
		e := t.entries[i]
		if !sorted && i+1 < end && bytes.Equal(e.key, t.entries[i+1].key) {
			// A superseded entry must still be valid; we can vouch only for strings and
			// bytes.
			ok = f.form == formString || f.form == formBytes
			continue
		}
		b = append(appendText(b, e.key), ':')
		b, ok = t.value(b, f, e.value)
		b = append(b, ',')
	}
	clear(t.entries[base:]) // a pooled transcoder must not retain the message
	t.entries = t.entries[:base]
	b[len(b)-1] = '}'
	return b, ok
}

// parseEntry returns the key and the value of a map's entry. The generated code checks
// neither the wire types within an entry nor its end, so an entry must be exactly as the
// generated code writes it. That code leaves nil bytes out.
func parseEntry(raw []byte) (e entry, ok bool) {
	s := protobuf.Scanner{Data: raw}
	if !s.Next() || s.Field != 1 || s.Type != protobuf.TypeBytes {
		return entry{}, false
	}
	e.key = s.Value
	if s.At == len(raw) {
		return e, true
	}
	ok = s.Next() && s.Field == 2 && s.Type == protobuf.TypeBytes && s.At == len(raw)
	e.value = s.Value
	return e, ok
}

// value appends a value that is not a number.
func (t *transcoder) value(b []byte, f *field, value []byte) ([]byte, bool) {
	switch f.form {
	case formString:
		return appendText(b, value), true
	case formBytes:
		return appendBytes(b, value), true
	case formStrings:
		return appendStrings(b, value)
	}
	if len(value) == 0 {
		return append(b, f.zero...), true
	}
	var text []byte
	ok := false
	switch f.form {
	case formMessage:
		return t.message(b, f.plan, value)
	case formTime:
		return appendTime(b, value, false)
	case formMicroTime:
		return appendTime(b, value, true)
	case formIntOrString:
		return appendIntOrString(b, value)
	case formQuantity:
		if text, ok = onlyField(value); ok && canonical(text) {
			return append(append(append(b, '"'), text...), '"'), true
		}
	case formRaw:
		if text, ok = onlyField(value); ok && compact(text) {
			return append(b, text...), true
		}
	}
	text, err := marshalDecoded(f.goType, value)
	return append(b, text...), err == nil
}

// marshalDecoded decodes a message of type t with the generated code and returns its
// JSON. A panic in the code of the type becomes an error.
func marshalDecoded(t reflect.Type, raw []byte) (text []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	value := reflect.New(t).Interface()
	message, ok := value.(protobuf.Message)
	if !ok {
		return nil, fmt.Errorf("%v cannot be read from protobuf", t)
	}
	if err := message.Unmarshal(raw); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
