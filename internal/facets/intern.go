// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package facets

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// interned is a value that many objects have. Its address identifies it.
type interned struct {
	encoded string
	id      uint32
}

// tuple has the interned values that an object has in one group.
type tuple struct {
	plan   *Plan
	values []*interned
}

// maxInterned limits the values, and the tuples, that an interner finds again. It finds up to
// twice as many.
const maxInterned = 1 << 14

// interner finds values and tuples that objects have already. It does not own them: records
// do, and values that no record has are freed once the interner has dropped them. It drops the
// ones that were not looked up while maxInterned others were. If it then sees one of them again,
// while objects still have it, there are two with the same content. So its own memory is bounded
// whatever the objects have, and nothing needs a reference count.
type interner struct {
	// recent has the tuples that were found last.
	recent [own]atomic.Pointer[recent]

	// mu guards the fields below.
	mu     sync.Mutex
	values generations[*interned]
	tuples generations[*tuple]
	last   uint32
}

// generations is a map that forgets what was not looked up lately.
type generations[V any] struct {
	young, old map[string]V
	// bytes is the size of the keys in both.
	bytes, oldBytes int64
}

// get finds a value by its key.
func (g *generations[V]) get(key []byte) (v V, ok bool) {
	if v, ok = g.young[string(key)]; ok {
		return v, true
	}
	if v, ok = g.old[string(key)]; ok {
		g.put(string(key), v)
	}
	return v, ok
}

// put adds a value.
func (g *generations[V]) put(key string, v V) {
	if len(g.young) >= maxInterned {
		g.bytes -= g.oldBytes
		g.old, g.young, g.oldBytes = g.young, nil, g.bytes
	}
	if g.young == nil {
		g.young = map[string]V{}
	}
	g.young[key] = v
	g.bytes += int64(len(key))
}

// len returns the number of entries. A value can be in both generations.
func (g *generations[V]) len() int { return len(g.young) + len(g.old) }

// internTuple returns the tuple of what was found in a group. Before is that of the previous state
// of the object, or nil: mostly nothing has changed, and then the interner is not asked. So what
// objects share stays shared however many values there are. Without it, the last tuple of the group
// is tried: in a list, objects that share values are neighbours.
func (p *Plan) internTuple(x *extraction, g group, before *tuple) *tuple {
	in := &p.intern
	if before != nil && before.plan == p && before.is(x.encoded[g]) {
		return before
	}
	last := in.recent[g].Load()
	if last != nil && last.encoded == string(x.encoded[g]) {
		return last.tuple
	}
	if before == nil || before.plan != p {
		before = nil
		if last != nil {
			before = last.tuple
		}
	}
	t := p.findTuple(x, g, before)
	in.recent[g].Store(&recent{string(x.encoded[g]), t})
	return t
}

// recent is the tuple that was found last, and all of its values.
type recent struct {
	encoded string
	tuple   *tuple
}

// findTuple is internTuple for values that are not all the same as before.
func (p *Plan) findTuple(x *extraction, g group, before *tuple) *tuple {
	in := &p.intern
	in.mu.Lock()
	defer in.mu.Unlock()
	x.tuple, x.key = x.tuple[:0], x.key[:0]
	for b := x.encoded[g]; len(b) > 0; {
		n, at := next(b), len(x.tuple)
		var v *interned
		if before != nil && before.values[at].encoded == string(b[:n]) {
			v = before.values[at]
		} else {
			v = in.valueLocked(b[:n])
		}
		x.tuple, b = append(x.tuple, v), b[n:]
		x.key = binary.LittleEndian.AppendUint32(x.key, v.id)
	}
	if known, ok := in.tuples.get(x.key); ok {
		return known
	}
	made := &tuple{plan: p, values: slices.Clone(x.tuple)}
	in.tuples.put(string(x.key), made)
	return made
}

// is reports whether the tuple has these values.
func (t *tuple) is(encoded []byte) bool {
	for _, v := range t.values {
		n := len(v.encoded)
		if len(encoded) < n || string(encoded[:n]) != v.encoded {
			return false
		}
		encoded = encoded[n:]
	}
	return len(encoded) == 0
}

func (in *interner) valueLocked(encoded []byte) *interned {
	if known, ok := in.values.get(encoded); ok {
		return known
	}
	in.last++
	v := &interned{encoded: string(encoded), id: in.last}
	in.values.put(v.encoded, v)
	return v
}

const (
	// sizes of what an interner keeps, in bytes besides the text: the entry of a map at its
	// average load, the value or the tuple, and rounding.
	valueSize, tupleSize = 88, 160
)

// Interned is the number and the approximate size of the values and tuples that a plan finds
// again. Those that objects have and the plan has dropped are not included.
type Interned struct {
	Values, Tuples int
	Bytes          int64
}

// Interned returns what the plan has interned.
func (p *Plan) Interned() Interned {
	in := &p.intern
	in.mu.Lock()
	defer in.mu.Unlock()
	n := Interned{Values: in.values.len(), Tuples: in.tuples.len()}
	n.Bytes = in.values.bytes + in.tuples.bytes*3 + int64(n.Values)*valueSize + int64(n.Tuples)*tupleSize
	return n
}
