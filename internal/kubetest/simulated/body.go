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
	// chunk is how many bytes of a body are gathered before they are sent.
	chunk = 64 << 10
	// gzipFrom is the size above which lists are compressed, as in the real server.
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
			panic(err) // the level is valid
		}
		return z
	}}
)

// body is a long response, sent while it is made. The caller of begin must close it.
type body struct {
	out  counted
	gzip bool

	buf *[]byte      // nil while it is empty
	z   *gzip.Writer // nil while it is empty
}

// counted counts the bytes that are sent.
type counted struct {
	w http.ResponseWriter
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// begin sends the header of a long response.
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

// add calls f to append to the body, and sends the gathered bytes if there are enough.
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

// drain sends the gathered bytes.
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

// flush makes everything visible to the client and releases all buffers. What follows is
// a new gzip stream, as in the real server.
func (b *body) flush() error {
	if err := b.drain(); err != nil {
		return err
	}
	if b.z != nil {
		// Gzip readers hold back the end of a stream until they know whether another
		// stream follows. What is flushed before the end is delivered at once.
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

// finish ends the gzip stream, unless there was an error: then it must not look complete.
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

// close sends the rest, unless there was an error, and releases the buffers. After an
// error, the request ends in a way that the client notices.
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
