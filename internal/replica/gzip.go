// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// A gzip stream is a header, deflate blocks, a checksum and a length. Blocks that end
// at a byte and refer to nothing before them can be put together in any order, and
// checksums can be combined: what does not change is compressed once.

// gzipHead is the header of a stream that says nothing.
const gzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// gzipLevel is that of flate: what is kept is worth a little more work.
const gzipLevel = 3

// flushed is an empty block: a reader hands over what was before it.
const flushed = "\x00\x00\x00\xff\xff"

// segment is a part of a gzip stream.
type segment struct {
	deflated []byte
	crc      uint32
	// length is that of what is compressed.
	length int
}

// gzipSum is the checksum and the length of a stream so far.
type gzipSum struct {
	crc    uint32
	length uint32
}

// add takes note of a segment.
func (s *gzipSum) add(crc uint32, length int) {
	s.crc = combine(s.crc, crc, int64(length))
	s.length += uint32(length)
}

// tail is the end of the stream: a last, empty block, the checksum and the length.
func (s *gzipSum) tail() []byte {
	b := []byte{1, 0, 0, 0xff, 0xff}
	b = binary.LittleEndian.AppendUint32(b, s.crc)
	return binary.LittleEndian.AppendUint32(b, s.length)
}

// deflaters are writers for reuse: one takes some 400 KB.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, gzipLevel)
	if err != nil {
		panic("flate: " + err.Error()) // the level is a constant
	}
	return w
}}

// deflate compresses bytes into a segment.
func deflate(raw []byte) segment {
	s := segment{crc: crc32.ChecksumIEEE(raw), length: len(raw)}
	if len(raw) < 64 {
		s.deflated = stored(raw)
		return s
	}
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, err := w.Write(raw)
	if err == nil {
		err = w.Flush()
	}
	if err != nil { // a buffer takes everything
		s.deflated = stored(raw)
		return s
	}
	s.deflated = bytes.Clone(out.Bytes())
	return s
}

// stored is a block that is not compressed.
func stored(raw []byte) []byte {
	var b []byte
	for len(raw) > 0 {
		n := min(len(raw), 0xffff)
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(n))
		b = append(b, raw[:n]...)
		raw = raw[n:]
	}
	return b
}

// member is a whole gzip stream of its own. Its content ends in a block that is not
// the last: readers hand that over before they have seen the end.
func (s segment) member() []byte {
	var sum gzipSum
	sum.add(s.crc, s.length)
	b := append([]byte(gzipHead), s.deflated...)
	if !bytes.HasSuffix(b, []byte(flushed)) {
		b = append(b, flushed...)
	}
	return append(b, sum.tail()...)
}

// combine is the checksum of two texts one after the other, of which the second has
// so many bytes. Appending zeros to a text is linear in its checksum: a matrix over
// one bit, whose powers are known.
func combine(first, second uint32, length int64) uint32 {
	for i := 0; length > 0; i++ {
		if length&1 != 0 {
			first = zeros[i].times(first)
		}
		length >>= 1
	}
	return first ^ second
}

type matrix [32]uint32

func (m *matrix) times(v uint32) uint32 {
	var sum uint32
	for i := 0; v != 0; i++ {
		if v&1 != 0 {
			sum ^= m[i]
		}
		v >>= 1
	}
	return sum
}

// zeros has at i the matrix that appends 2^i zero bytes.
var zeros = func() (all [63]matrix) {
	var bit matrix // appends one zero bit
	bit[0] = crc32.IEEE
	for i := 1; i < 32; i++ {
		bit[i] = 1 << (i - 1)
	}
	square := func(m *matrix) (out matrix) {
		for i := range m {
			out[i] = m.times(m[i])
		}
		return out
	}
	two := square(&bit)
	four := square(&two)
	all[0] = square(&four)
	for i := 1; i < len(all); i++ {
		all[i] = square(&all[i-1])
	}
	return all
}()
