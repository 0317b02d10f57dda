// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The JSON of a message is written from its bytes, by a plan of its Go type. Each
// message is walked twice: once to find its fields, once to write them in the order
// of the Go type. Only what API servers write is understood. Anything else, and so
// anything malformed, is left to the generated code and encoding/json, whose verdict
// counts.

// AppendJSON appends the object as JSON: that which encoding/json makes of the Go
// value of an object in protobuf, byte for byte, without apiVersion and kind; the
// bytes of an object in JSON. What cannot be written is an [*ObjectError], and then
// nothing is appended.
func (o *Object) AppendJSON(b []byte) ([]byte, error) {
	raw, scratch := o.open()
	defer scratch.free()
	if o.encoding == JSON {
		return append(b, raw...), nil
	}
	if t := o.kind.goType(); t != nil && t.Kind() == reflect.Pointer && len(raw) <= math.MaxInt32 {
		if p := planOf(t.Elem()); p != nil {
			if b, ok := transcode(b, p, raw); ok {
				return b, nil
			}
		}
	}
	text, err := o.marshalOwn(raw)
	if err != nil {
		return b, &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: fmt.Errorf("write as JSON: %w", err)}
	}
	return append(b, text...), nil
}

// marshalOwn is what AppendJSON must append for a message.
func (o *Object) marshalOwn(raw []byte) (text []byte, err error) {
	own, err := o.own(raw)
	if err != nil {
		return nil, err
	}
	own.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	err = o.unmarshal(func() (err error) {
		text, err = json.Marshal(own)
		return err
	})
	return text, err
}

// transcoder is what transcoding one object needs for a moment. Each message on the
// way to the one being written has its part of slots and entries.
type transcoder struct {
	slots   []slot
	entries []entry
	// merged are messages that came in several parts.
	merged []byte
}

// slot is where a field is in its message. It holds anything unless the field is
// there.
type slot struct {
	// first is where its first tag begins, from and to are its last value.
	first, from, to int32
	// num is the last value of a number.
	num uint64
}

// entry is one of a map.
type entry struct{ key, value []byte }

var transcoders = sync.Pool{New: func() any { return new(transcoder) }}

// transcode appends the JSON of a message. It is false for what it does not
// understand, and what is returned then is of no use.
func transcode(b []byte, p *plan, raw []byte) ([]byte, bool) {
	t := transcoders.Get().(*transcoder)
	b, ok := t.message(b, p, raw)
	t.free()
	return b, ok
}

func (t *transcoder) free() {
	if cap(t.merged) > 16*keep || cap(t.entries) > keep/4 {
		return
	}
	clear(t.entries) // see object
	t.slots, t.entries, t.merged = t.slots[:0], t.entries[:0], t.merged[:0]
	transcoders.Put(t)
}

func (t *transcoder) message(b []byte, p *plan, raw []byte) ([]byte, bool) {
	at := len(b)
	b, ok := t.members(b, p, raw)
	if len(b) == at {
		return append(b, '{', '}'), ok
	}
	b[at] = '{' // it was the comma before the first member
	return append(b, '}'), ok
}

// members appends the members of a message's JSON, each behind a comma.
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
		// It stays as it is when messages within need more slots, and these move.
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

// find fills the slots of the fields that a message has, and says which these are, and
// which of them it has again.
func (p *plan) find(slots []slot, raw []byte) (there, again uint64, ok bool) {
	for at := 0; at < len(raw); {
		first, number, wire, from, num := at, int32(raw[at]>>3), uint8(wireBytes), at+2, uint64(0)
		if at = shortEnd(raw, first); at == 0 {
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

// shortEnd is where the field at at ends, if it is bytes and neither its tag nor its
// length need more than a byte, as most; else 0.
func shortEnd(b []byte, at int) int {
	if at+1 < len(b) && b[at] > 7 && b[at]&0x87 == wireBytes && b[at+1] < 0x80 && int(b[at+1]) <= len(b)-at-2 {
		return at + 2 + int(b[at+1])
	}
	return 0
}

// fieldAt is the field at at: its value is from from to to, or num. To is -1 if there
// is none.
func fieldAt(b []byte, at int) (number int32, wire uint8, from, to int, num uint64) {
	if at+1 < len(b) && b[at] > 7 && b[at]&0x87 == wireVarint && b[at+1] < 0x80 {
		return int32(b[at] >> 3), wireVarint, at + 1, at + 2, uint64(b[at+1])
	}
	s := protoScan{b: b, at: at}
	if !s.next() {
		return 0, 0, 0, -1, 0
	}
	return s.field, s.wire, s.at - len(s.value), s.at, s.num
}

// scalar appends bytes or a number. If the field came again the last one counts.
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

// appendNumber appends a boolean too, which is one in protobuf.
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

// single appends a field that is one message, which may have come again.
func (t *transcoder) single(b []byte, f *field, raw []byte, s *slot, again bool) ([]byte, bool) {
	value := raw[s.from:s.to]
	if again {
		var ok bool
		if value, ok = t.merge(raw, f.number); !ok || f.form != formMessage && f.form != formStrings {
			return b, false // a time, say, is not merged
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
		b = b[:at] // a time that is zero
	}
	return b, ok
}

// merge is a message that came in several parts, one behind the other. Each must be
// whole, else the end of one would be taken for the beginning of the next.
func (t *transcoder) merge(raw []byte, number int32) (whole []byte, ok bool) {
	at := len(t.merged)
	for s := (protoScan{b: raw}); s.next(); {
		if s.field != number {
			continue
		}
		part := protoScan{b: s.value}
		for part.next() {
		}
		if part.bad {
			return nil, false
		}
		t.merged = append(t.merged, s.value...)
	}
	return t.merged[at:], true
}

func (t *transcoder) list(b []byte, f *field, raw []byte, s *slot) ([]byte, bool) {
	b = append(append(b, f.name...), '[')
	ok := true
	for at := int(s.first); ok && at < int(s.to); {
		number, from, to, num := int32(raw[at]>>3), at+2, shortEnd(raw, at), uint64(0)
		if to == 0 {
			number, _, from, to, num = fieldAt(raw, at)
		}
		if at = to; number != f.number {
			continue
		}
		if f.wire == wireVarint {
			b = appendNumber(b, f.form, num)
		} else {
			b, ok = t.value(b, f, raw[from:to])
		}
		b = append(b, ',')
	}
	b[len(b)-1] = ']'
	return b, ok
}

// object appends a map. As encoding/json does, it sorts by key; of entries with the
// same key the last counts.
func (t *transcoder) object(b []byte, f *field, raw []byte, s *slot) ([]byte, bool) {
	base, sorted := len(t.entries), true
	for at := int(s.first); at < int(s.to); {
		number, from, to := int32(raw[at]>>3), at+2, shortEnd(raw, at)
		if to == 0 {
			number, _, from, to, _ = fieldAt(raw, at)
		}
		if at = to; number != f.number {
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
			// What is overruled must be good all the same, which is easy to say of text.
			ok = f.form == formString || f.form == formBytes
			continue
		}
		b = append(appendText(b, e.key), ':')
		b, ok = t.value(b, f, e.value)
		b = append(b, ',')
	}
	clear(t.entries[base:]) // they must not hold the bytes of an object
	t.entries = t.entries[:base]
	b[len(b)-1] = '}'
	return b, ok
}

// parseEntry takes a map's entry apart. The generated code looks neither at wire types
// within it nor at its end, so it must be exactly as that writes it: bytes that are nil
// are left out.
func parseEntry(raw []byte) (e entry, ok bool) {
	s := protoScan{b: raw}
	if !s.next() || s.field != 1 || s.wire != wireBytes {
		return entry{}, false
	}
	e.key = s.value
	if s.at == len(raw) {
		return e, true
	}
	ok = s.next() && s.field == 2 && s.wire == wireBytes && s.at == len(raw)
	e.value = s.value
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
		if text, ok = only(value); ok && canonical(text) {
			return append(append(append(b, '"'), text...), '"'), true
		}
	case formRaw:
		if text, ok = only(value); ok && compact(text) {
			return append(b, text...), true
		}
	}
	text, err := marshalForeign(f.foreign, value)
	return append(b, text...), err == nil
}

// marshalForeign is the JSON of a message by its Go type alone.
func marshalForeign(t reflect.Type, raw []byte) (text []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	value := reflect.New(t).Interface()
	message, ok := value.(unmarshaler)
	if !ok {
		return nil, errors.New("it has no protobuf form")
	}
	if err := message.Unmarshal(raw); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
