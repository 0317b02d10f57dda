// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/watershed-project/watershed/replica/internal/encode"
)

// WorthGzip is the length from which a response is compressed, in bytes.
const WorthGzip = 128 << 10

// Body is a response that is written part by part. The first parts are held: then the
// response is compressed if it is long enough and the client accepts gzip, and an error in
// those parts can still become the response.
type Body struct {
	*Response
	logger      *slog.Logger
	contentType string

	wants   bool // gzip, if it is long enough
	started bool
	zipping bool
	held    []encode.Part
	length  int
	sum     encode.GzipSum
	// gathered are small parts, which are compressed and written together.
	gathered piece
	// zipped are compressed bytes that are not written yet. A block is only a few KB of
	// them, and a write of HTTP/2 costs more than a copy.
	zipped piece
}

// piece is bytes in a buffer, which is nil if there are none.
type piece struct {
	bytes  []byte
	buffer *[encode.PieceBytes]byte
}

// room returns how many bytes can be added.
func (p *piece) room() int { return encode.PieceBytes - len(p.bytes) }

// add adds bytes, for which there is room.
func (p *piece) add(b []byte) {
	if p.buffer == nil {
		p.buffer = encode.GetPiece()
		p.bytes = p.buffer[:0]
	}
	p.bytes = append(p.bytes, b...)
}

// drain writes the bytes and releases the buffer.
func (p *piece) drain(write func([]byte) error) error {
	if p.buffer == nil {
		return nil
	}
	err := write(p.bytes)
	encode.PutPiece(p.buffer)
	*p = piece{}
	return err
}

// NewBody begins the response to a request. The caller calls [Body.Finish].
func NewBody(t *Tracker, w http.ResponseWriter, r *http.Request, contentType string, logger *slog.Logger) *Body {
	return &Body{Response: t.Begin(w), logger: logger, contentType: contentType, wants: AcceptsGzip(r)}
}

// NewStreamBody continues a response whose header has been written, with gzip or without.
// The caller writes the beginning and the end of the gzip stream.
func NewStreamBody(r *Response, gzip bool) *Body {
	return &Body{Response: r, started: true, zipping: gzip}
}

// Add writes a part of the response.
func (b *Body) Add(p encode.Part) error {
	if b.started {
		return b.write(p)
	}
	b.length += p.Len()
	b.held = append(b.held, p)
	// Until something is written, an object that cannot be sent is a good error response.
	if b.length <= encode.PieceBytes || b.wants && b.length <= WorthGzip {
		return nil
	}
	return b.start()
}

// start writes the header and what was held.
func (b *Body) start() error {
	b.started = true
	b.zipping = b.wants && b.length > WorthGzip
	header := b.Header()
	header.Set("Content-Type", b.contentType)
	if b.zipping {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
	}
	b.WriteHeader(http.StatusOK)
	if b.zipping {
		b.zipped.add([]byte(encode.GzipHead))
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

func (b *Body) write(p encode.Part) error {
	if !p.Whole() {
		return p.Each(b.gather)
	}
	if err := b.gathered.drain(b.writeRaw); err != nil {
		return err
	}
	if b.zipping {
		return b.writeSegment(p.Segment())
	}
	return p.WriteBlock(b)
}

func (b *Body) writeSegment(s *encode.Segment) error {
	b.sum.Add(s)
	return b.writeZipped(s.Bytes())
}

// writeZipped writes compressed bytes, a whole piece at a time.
func (b *Body) writeZipped(zipped []byte) error {
	for len(zipped) > b.zipped.room() {
		n := b.zipped.room()
		b.zipped.add(zipped[:n])
		if err := b.zipped.drain(b.writeAll); err != nil {
			return err
		}
		zipped = zipped[n:]
	}
	b.zipped.add(zipped)
	return nil
}

// gather adds bytes to those that are written together.
func (b *Body) gather(raw []byte) error {
	if len(raw) > b.gathered.room() {
		if err := b.gathered.drain(b.writeRaw); err != nil {
			return err
		}
	}
	if len(raw) > encode.PieceBytes {
		return b.writeRaw(raw)
	}
	b.gathered.add(raw)
	return nil
}

// Drain writes everything that was added.
func (b *Body) Drain() error {
	if err := b.gathered.drain(b.writeRaw); err != nil {
		return err
	}
	return b.zipped.drain(b.writeAll)
}

func (b *Body) writeRaw(raw []byte) error {
	if b.zipping {
		s := encode.Deflate(raw)
		return b.writeSegment(&s)
	}
	return b.writeAll(raw)
}

func (b *Body) writeAll(bytes []byte) error {
	_, err := b.Write(bytes)
	return err
}

// close ends the response.
func (b *Body) close() error {
	if !b.started {
		if err := b.start(); err != nil {
			return err
		}
	}
	if err := b.gathered.drain(b.writeRaw); err != nil {
		return err
	}
	if b.zipping {
		if err := b.writeZipped(b.sum.Tail()); err != nil {
			return err
		}
	}
	return b.zipped.drain(b.writeAll)
}

// Tail returns the end of the gzip stream that the body has written so far.
func (b *Body) Tail() []byte { return b.sum.Tail() }

// Finish calls a function that writes the response, and ends it. An error before the first
// byte is returned. After it the connection is cut, because a part must not look like the
// whole.
func (b *Body) Finish(write func() error) error {
	defer b.End()
	err := write()
	if err == nil {
		err = b.close()
	}
	if err == nil || !b.started {
		return err
	}
	var unsent *encode.UnsentError
	if errors.As(err, &unsent) {
		// It is too late to send the reason to the client.
		b.logger.Error("response cut off", "err", err)
	}
	panic(http.ErrAbortHandler)
}
