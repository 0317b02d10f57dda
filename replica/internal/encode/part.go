// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"io"

	"github.com/watershed-project/watershed/wire"
)

// Part is a part of the bytes of a response. It consists of given bytes, of a whole
// block, or of some objects of a block.
type Part struct {
	raw    []byte
	blocks *Blocks
	block  *block
	text   *text
	form   BlockForm
	// some are the places of the objects in the block that belong to the part; nil means
	// all.
	some []int
}

// Part returns a part with the bytes of a run of objects, encoded in form f. If some is
// not nil, the part has only the objects at those places of the run. Part fails if an
// object of the part cannot be encoded. Part does not keep the slice run.
func (c *Blocks) Part(s Source, run []*wire.Object, f BlockForm, some []int) (Part, error) {
	b := c.get(s, run)
	t := c.text(b, run, f)
	return Part{blocks: c, block: b, text: t, form: f, some: some}, t.check(some)
}

// Raw returns a part that consists of the bytes b. The caller must not modify them any
// more.
func Raw(b []byte) Part { return Part{raw: b} }

// Whole reports whether the part is a whole block. A whole block is written with
// [Part.WriteBlock] or [Part.Segment], any other part with [Part.Each].
func (p Part) Whole() bool { return p.block != nil && p.some == nil }

// Len returns how many bytes the part has.
func (p Part) Len() int {
	if p.block == nil {
		return len(p.raw)
	}
	if p.some == nil {
		return p.text.length
	}
	n := 0
	for _, i := range p.some {
		from, to := p.text.span(i, p.form)
		if n > 0 && to > from && p.form.separated() {
			n++
		}
		n += int(to - from)
	}
	return n
}

// Each calls write with the bytes of the part, once or several times. The bytes are valid
// only until write returns.
func (p Part) Each(write func([]byte) error) error {
	if p.block == nil {
		return write(p.raw)
	}
	return p.text.pick(p.form, p.some, write)
}

// Items calls write with the bytes of each object of the part, and [Raw] bytes at once. A
// part that is a whole block is unpacked as a whole. The bytes are valid only until write
// returns.
func (p Part) Items(write func([]byte) error) error {
	if !p.Whole() {
		return p.Each(write)
	}
	all := make([]int, len(p.text.ends))
	for i := range all {
		all[i] = i
	}
	return p.text.pick(p.form, all, write)
}

// WriteBlock writes a whole block.
func (p Part) WriteBlock(w io.Writer) error { return p.text.writeTo(w) }

// Segment returns a whole block as part of a gzip stream. The segment is compressed once
// for all readers.
func (p Part) Segment() *Segment { return p.blocks.segment(p.block, p.form, p.text) }
