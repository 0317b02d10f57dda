// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"errors"
	"net/http"

	"sigs.k8s.io/yaml"
)

// worthGzip is how long an answer must be to be compressed.
const worthGzip = 128 << 10

// body is an answer that is written part by part. The first parts are held: it is
// compressed if it is long enough and the client takes that, and an error in them can
// still be answered as such.
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
	// gathered are bytes that are not written yet, buffer where they are: nil if there
	// are none. Small parts are compressed and written together.
	gathered []byte
	buffer   *[pieceBytes]byte
}

// part is some bytes of an answer, which must not change any more, or the text of a block
// or of some of its objects.
type part struct {
	raw   []byte
	block *block
	text  *text
	form  blockForm
	// some are the objects of the block that are wanted; nil is all.
	some []int
}

// length returns how many bytes a part has.
func (p part) length() int {
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

func (q *request) begin(contentType string) *body {
	return &body{pulse: q.server.pulses.begin(q.w), blocks: q.server.blocks, contentType: contentType, wants: takesGzip(q.r)}
}

// add writes a part of the answer.
func (b *body) add(p part) error {
	if b.started {
		return b.write(p)
	}
	b.length += p.length()
	b.held = append(b.held, p)
	// Until something is written, an object that cannot be sent is a good error response.
	if b.length <= pieceBytes || b.wants && b.length <= worthGzip {
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
	switch {
	case p.block == nil:
		return b.gather(p.raw)
	case p.some != nil:
		return p.text.pick(p.form, p.some, b.gather)
	}
	if err := b.drain(); err != nil {
		return err
	}
	if b.zipping {
		return b.writeSegment(b.blocks.segment(p.block, p.form, p.text))
	}
	return p.text.writeTo(b)
}

func (b *body) writeSegment(s *segment) error {
	b.sum.add(s.crc, s.length)
	_, err := b.Write(s.deflated)
	return err
}

// gather adds bytes to those that are written together.
func (b *body) gather(raw []byte) error {
	if len(b.gathered)+len(raw) > pieceBytes {
		if err := b.drain(); err != nil {
			return err
		}
	}
	if len(raw) > pieceBytes {
		return b.writeRaw(raw)
	}
	if b.buffer == nil {
		b.buffer = pieces.Get().(*[pieceBytes]byte)
		b.gathered = b.buffer[:0]
	}
	b.gathered = append(b.gathered, raw...)
	return nil
}

// drain writes what was gathered, and gives the buffer back.
func (b *body) drain() error {
	if b.buffer == nil {
		return nil
	}
	err := b.writeRaw(b.gathered)
	pieces.Put(b.buffer)
	b.gathered, b.buffer = nil, nil
	return err
}

func (b *body) writeRaw(raw []byte) error {
	if b.zipping {
		s := deflate(raw)
		return b.writeSegment(&s)
	}
	_, err := b.Write(raw)
	return err
}

// close ends the answer.
func (b *body) close() error {
	if !b.started {
		if err := b.start(); err != nil {
			return err
		}
	}
	if err := b.drain(); err != nil {
		return err
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
	if err == nil || !b.started {
		return err
	}
	var unsent *unsentError
	if errors.As(err, &unsent) {
		// The client cannot be sent the reason any more.
		b.blocks.logger.Error("response cut off", "err", err)
	}
	panic(http.ErrAbortHandler)
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
