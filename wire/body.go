// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"errors"
	"io"
)

const (
	// maxObject is the most that one object, or one frame of a watch, may be. The
	// API server refuses to store more than some MiB.
	maxObject = 128 << 20
	// step is what a length is believed for before its bytes are there.
	step = 1 << 20
	// keep is how much buffer a stream holds on to when nothing happens.
	keep = 64 << 10
)

// readN reads n bytes into a slice of that size. It holds at most twice as much
// as has arrived, or step.
func readN(r io.Reader, n uint64) ([]byte, error) {
	if n > maxObject {
		return nil, errTooLarge
	}
	var b []byte
	for have := 0; have < int(n) || b == nil; have = len(b) {
		grown := make([]byte, min(int(n), max(2*have, step)))
		copy(grown, b)
		b = grown
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return nil, unexpected(err)
		}
	}
	return b, nil
}

// unexpected makes the end of a stream that has come too early an error.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// meter bounds what is read for one JSON value: the decoder behind it buffers
// values whole, however long they are.
type meter struct {
	// first is read before r.
	first []byte
	r     io.Reader
	left  int
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
		return 0, errTooLarge
	}
	// The decoder would ask for ever.
	for range 100 {
		if n, err := m.r.Read(p[:min(len(p), m.left)]); n > 0 || err != nil {
			m.left -= n
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}
