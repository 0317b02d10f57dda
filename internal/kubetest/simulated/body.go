// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
)

const (
	// chunk is how much of a body is gathered before it is sent.
	chunk = 64 << 10
	// gzipFrom is the size above which lists are compressed, as the real
	// server's.
	gzipFrom = 128 << 10
)

// The buffers of bodies that are being sent: idle watches have none.
var (
	chunks = sync.Pool{New: func() any {
		b := make([]byte, 0, chunk+16<<10)
		return &b
	}}
	compressors = sync.Pool{New: func() any {
		z, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is one that there is
		}
		return z
	}}
)

// body is a long answer, sent as it is made. Whoever begins one must close it.
type body struct {
	out  counted
	gzip bool

	buf *[]byte      // nil while there is nothing
	z   *gzip.Writer // nil while there is nothing
}

// counted counts what is sent.
type counted struct {
	w http.ResponseWriter
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// begin sends the header of a long answer.
func (c *Cluster) begin(w http.ResponseWriter, contentType string, compress bool) *body {
	h := w.Header()
	h.Set("Content-Type", contentType)
	if compress {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
	}
	w.WriteHeader(http.StatusOK)
	return &body{out: counted{w: w, n: &c.stats.sent}, gzip: compress}
}

// add lets f append to the body and sends what has gathered if it is enough.
func (b *body) add(f func(dst []byte) ([]byte, error)) error {
	if b.buf == nil {
		b.buf = chunks.Get().(*[]byte)
	}
	dst, err := f(*b.buf)
	if err != nil {
		return err
	}
	*b.buf = dst
	if len(dst) < chunk {
		return nil
	}
	return b.drain()
}

func (b *body) write(p []byte) error {
	return b.add(func(dst []byte) ([]byte, error) { return append(dst, p...), nil })
}

// drain sends what has gathered.
func (b *body) drain() error {
	if b.buf == nil {
		return nil
	}
	var w io.Writer = &b.out
	if b.gzip {
		if b.z == nil {
			b.z = compressors.Get().(*gzip.Writer)
			b.z.Reset(&b.out)
		}
		w = b.z
	}
	_, err := w.Write(*b.buf)
	*b.buf = (*b.buf)[:0]
	chunks.Put(b.buf)
	b.buf = nil
	return err
}

// flush makes the client see everything and gives every buffer back. What comes
// after it is compressed on its own, as the real server does it.
func (b *body) flush() error {
	if err := b.drain(); err != nil {
		return err
	}
	if b.z != nil {
		// Readers of gzip hold the end of a stream back until they know whether
		// another follows. Flushed before it ends, it is not the end.
		if err := b.z.Flush(); err != nil {
			return err
		}
	}
	if err := b.finish(nil); err != nil {
		return err
	}
	b.out.w.(http.Flusher).Flush()
	return nil
}

// finish ends what is compressed, unless something failed: then it must not look
// complete.
func (b *body) finish(failed error) error {
	if b.z == nil {
		return failed
	}
	if failed == nil {
		failed = b.z.Close()
	}
	b.z.Reset(io.Discard)
	compressors.Put(b.z)
	b.z = nil
	return failed
}

// close sends the rest, unless something failed, and gives the buffers back. A
// body that failed ends the request in a way that the client can tell.
func (b *body) close(failed error) {
	if failed == nil {
		failed = b.drain()
	}
	if b.buf != nil {
		*b.buf = (*b.buf)[:0]
		chunks.Put(b.buf)
		b.buf = nil
	}
	if b.finish(failed) != nil {
		panic(http.ErrAbortHandler)
	}
}
