// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// A gzip stream is a header, deflate blocks, a checksum and a length. Blocks that end at
// a byte boundary and do not refer to earlier bytes can be joined in any order. Their
// checksums can be combined. So bytes that do not change are compressed only once.

// GzipHead is the header of a stream, without a name or a time.
const GzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// gzipLevel is the compression level of flate. It is higher than the fastest level,
// because a segment is compressed once and sent often.
const gzipLevel = 3

// GzipFlush is an empty block. A decompressor that reads it returns all bytes before it
// without waiting for more.
const GzipFlush = "\x00\x00\x00\xff\xff"

// Segment is a part of a gzip stream.
type Segment struct {
	deflated []byte
	crc      uint32
	// length is the number of bytes before compression.
	length int
}

// Bytes returns the compressed bytes.
func (s *Segment) Bytes() []byte { return s.deflated }

// GzipSum is the checksum and the length of a stream so far.
type GzipSum struct {
	crc    uint32
	length uint32
}

// Add appends a segment to the stream.
func (s *GzipSum) Add(next *Segment) {
	s.crc = combine(s.crc, next.crc, int64(next.length))
	s.length += uint32(next.length)
}

// Tail returns the end of the stream, which is an empty last block followed by the
// checksum and the length.
func (s *GzipSum) Tail() []byte {
	b := []byte{1, 0, 0, 0xff, 0xff}
	b = binary.LittleEndian.AppendUint32(b, s.crc)
	return binary.LittleEndian.AppendUint32(b, s.length)
}

// deflaters holds writers for reuse, because each takes about 400 KB.
var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, gzipLevel)
	if err != nil {
		panic("flate: " + err.Error()) // impossible: the level is a valid constant
	}
	return w
}}

// Deflate compresses bytes into a segment.
func Deflate(raw []byte) Segment {
	s := Segment{crc: crc32.ChecksumIEEE(raw), length: len(raw)}
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
	if err != nil { // impossible: writing to a buffer does not fail
		s.deflated = stored(raw)
		return s
	}
	s.deflated = bytes.Clone(out.Bytes())
	return s
}

// stored returns the bytes as blocks that are not compressed, of at most 65,535 bytes
// each.
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

// Member returns the segment as a gzip stream of its own. It ends the content with
// GzipFlush, so that a decompressor returns all of the content before it reads the end of
// the stream.
func (s Segment) Member() []byte {
	var sum GzipSum
	sum.Add(&s)
	b := append([]byte(GzipHead), s.deflated...)
	if !bytes.HasSuffix(b, []byte(GzipFlush)) {
		b = append(b, GzipFlush...)
	}
	return append(b, sum.Tail()...)
}

// combine returns the checksum of two texts joined together, given the checksum of each.
// The second text has length bytes. Appending zero bytes to a text changes its checksum
// by a linear map, which is a matrix of bits. The matrices for the powers of two are in
// zeros.
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

// zeros[i] is the matrix that appends 2^i zero bytes.
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
