// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"io"

	"github.com/watershed-project/watershed/wire"
)

// Part is some bytes of a response: given ones, or those of a block or of some of its
// objects.
type Part struct {
	raw    []byte
	blocks *Blocks
	block  *block
	text   *text
	form   BlockForm
	// some are the objects of the block that the part has; nil is all.
	some []int
}

// Part returns the bytes of a run of objects in a form, as a part of a response. If some is
// not nil, the part has only the objects at those places of the run. It fails if one of
// them cannot be encoded. The run is not kept.
func (c *Blocks) Part(s Source, run []*wire.Object, f BlockForm, some []int) (Part, error) {
	b := c.get(s, run)
	t := c.text(b, run, f)
	return Part{blocks: c, block: b, text: t, form: f, some: some}, t.check(some)
}

// Raw returns a part of given bytes, which must not change any more.
func Raw(b []byte) Part { return Part{raw: b} }

// Whole reports whether the part is a whole block. It is then written with [Part.WriteBlock]
// or [Part.Segment], and otherwise with [Part.Each].
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

// Each calls write with the bytes of the part, which are valid until it returns.
func (p Part) Each(write func([]byte) error) error {
	if p.block == nil {
		return write(p.raw)
	}
	return p.text.pick(p.form, p.some, write)
}

// WriteBlock writes a whole block.
func (p Part) WriteBlock(w io.Writer) error { return p.text.writeTo(w) }

// Segment returns a whole block as part of a gzip stream. It is made once for all readers.
func (p Part) Segment() *Segment { return p.blocks.segment(p.block, p.form, p.text) }
