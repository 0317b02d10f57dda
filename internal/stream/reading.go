// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"errors"
	"io"

	"github.com/watershed-project/watershed/internal/buffer"
)

// step is the number of bytes that may be allocated for an announced length before any of
// them have arrived.
const step = 1 << 20

// readN reads n bytes into a slice of that size. It allocates at most twice as much as
// has arrived, or step.
func readN(r io.Reader, n uint64) ([]byte, error) {
	if n > buffer.MaxObject {
		return nil, buffer.ErrTooLarge
	}
	var b []byte
	for have := 0; have < int(n) || b == nil; have = len(b) {
		grown := buffer.New(min(int(n), max(2*have, step)))
		copy(grown, b)
		b = grown
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return nil, unexpected(err)
		}
	}
	return b, nil
}

// unexpected turns io.EOF in the middle of a stream into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ahead is the body of a watch. While the watch is idle, it has no other buffer than the
// one of ahead, for the first bytes of the next frame.
type ahead struct {
	r io.Reader
	// first is read before r, and err is the error that r has returned with it.
	first []byte
	err   error
	b     [32]byte
}

// wait waits until there is something to read.
func (a *ahead) wait() {
	if len(a.first) > 0 || a.err != nil {
		return
	}
	n, err := a.r.Read(a.b[:])
	a.first, a.err = a.b[:n], err
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	if len(a.first) > 0 {
		n := copy(p, a.first)
		a.first = a.first[n:]
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.r.Read(p)
}

// meter limits how much is read for one JSON value. The decoder that reads from it
// buffers whole values, however long they are.
type meter struct {
	// first is read before r.
	first []byte
	r     io.Reader
	// left is how many bytes may still be read.
	left int
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	if len(m.first) > 0 {
		n := copy(p, m.first)
		if m.first = m.first[n:]; len(m.first) == 0 {
			m.first = nil
		}
		return n, nil
	}
	if m.left <= 0 {
		return 0, buffer.ErrTooLarge
	}
	// The decoder itself would retry forever.
	for range 100 {
		if n, err := m.r.Read(p[:min(len(p), m.left)]); n > 0 || err != nil {
			m.left -= n
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}
