// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"

	"sigs.k8s.io/yaml"
)

// worthGzip is how long an answer must be to be compressed.
const worthGzip = 128 << 10

// body is an answer that is written part by part. It is compressed if it is long
// enough and the client takes that: until that is known, parts are held.
type body struct {
	*pulse
	blocks      *blocks
	contentType string

	wants   bool // gzip, if it is long enough
	started bool
	zipping bool
	held    []part
	length  int
	sum     gzipSum
}

// part is some bytes of an answer, which must not change any more, or a block or some
// objects of it.
type part struct {
	raw   []byte
	block *block
	form  blockForm
	// some are the objects of the block that are wanted; nil is all.
	some []int
}

// length is how many bytes a part has.
func (c *blocks) length(p part) int {
	if p.block == nil {
		return len(p.raw)
	}
	t := c.text(p.block, p.form, false)
	if p.some == nil {
		return t.length
	}
	n := 0
	for _, i := range p.some {
		from, to := t.span(i, p.form)
		if n > 0 && to > from && p.form.separated() {
			n++
		}
		n += int(to - from)
	}
	return n
}

func (q *request) begin(contentType string) *body {
	return &body{pulse: q.server.pulses.begin(q.w), blocks: q.server.blocks, contentType: contentType, wants: takesGzip(q.r)}
}

// add writes a part of the answer.
func (b *body) add(p part) error {
	if b.started {
		return b.write(p)
	}
	b.length += b.blocks.length(p)
	b.held = append(b.held, p)
	if b.wants && b.length <= worthGzip {
		return nil
	}
	return b.start()
}

// start writes the header and what was held.
func (b *body) start() error {
	b.started = true
	b.zipping = b.wants && b.length > worthGzip
	header := b.w.Header()
	header.Set("Content-Type", b.contentType)
	if b.zipping {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
	}
	b.w.WriteHeader(http.StatusOK)
	if b.zipping {
		if _, err := b.Write([]byte(gzipHead)); err != nil {
			return err
		}
	}
	held := b.held
	b.held = nil
	for _, p := range held {
		if err := b.write(p); err != nil {
			return err
		}
	}
	return nil
}

func (b *body) write(p part) error {
	var err error
	if p.some != nil {
		t := b.blocks.text(p.block, p.form, false)
		buf := buffers.Get().(*[]byte)
		defer keepBuffer(buf)
		*buf = t.pick((*buf)[:0], p.form, p.some)
		p = part{raw: *buf}
	}
	switch {
	case p.block == nil && b.zipping:
		s := deflate(p.raw)
		b.sum.add(s.crc, s.length)
		_, err = b.Write(s.deflated)
	case p.block == nil:
		_, err = b.Write(p.raw)
	default:
		t := b.blocks.text(p.block, p.form, b.zipping)
		if b.zipping {
			b.sum.add(t.gzip.crc, t.gzip.length)
			_, err = b.Write(t.gzip.deflated)
			break
		}
		err = t.writeTo(b)
	}
	return err
}

// close ends the answer.
func (b *body) close() error {
	if !b.started {
		if err := b.start(); err != nil {
			return err
		}
	}
	if b.zipping {
		_, err := b.Write(b.sum.tail())
		return err
	}
	return nil
}

// finish writes an answer with a function, and ends it. An error before the first
// byte is returned; after it the connection is cut, since a part must not look like
// the whole.
func (b *body) finish(write func() error) error {
	defer b.end()
	err := write()
	if err == nil {
		err = b.close()
	}
	if err != nil && b.started {
		panic(http.ErrAbortHandler)
	}
	return err
}

// writeBody answers with bytes.
func (q *request) writeBody(data []byte) error {
	b := q.begin(mediaTypes[q.media.encoding])
	return b.finish(func() error { return b.add(part{raw: data}) })
}

// writeJSON answers with JSON, or with YAML that is made of it.
func (q *request) writeJSON(data []byte) error {
	if q.media.encoding == asYAML {
		text, err := yaml.JSONToYAML(data)
		if err != nil {
			return err
		}
		return q.writeBody(text)
	}
	data = indented(data, q.media.pretty)
	return q.writeBody(append(data[:len(data):len(data)], '\n'))
}
