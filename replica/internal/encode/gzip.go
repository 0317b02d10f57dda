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
	// shift is the factor of length. It is kept, because segments are joined often.
	shift uint32
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
	s.crc = multiply(s.crc, next.shift) ^ next.crc
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
	s := Segment{crc: crc32.ChecksumIEEE(raw), length: len(raw), shift: shiftOf(len(raw))}
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

// Checksums are polynomials over bits, modulo that of CRC-32. Appending n bytes to a text
// multiplies its checksum by x^(8n), and adds the checksum of the bytes.

// one is the polynomial 1. The highest bit is the lowest power, as in [crc32.IEEE].
const one = 1 << 31

// shiftOf returns the factor by which n appended bytes multiply a checksum: x^(8n).
func shiftOf(n int) uint32 {
	shift := uint32(one)
	for i := 0; n > 0; i++ {
		if n&1 != 0 {
			shift = multiply(shift, shifts[i])
		}
		n >>= 1
	}
	return shift
}

// multiply returns the product of two polynomials. It takes about 50 ns.
func multiply(a, b uint32) uint32 {
	var product uint32
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// shifts[i] is x^(8*2^i), the factor for 2^i bytes.
var shifts = func() (all [63]uint32) {
	all[0] = one >> 8
	for i := 1; i < len(all); i++ {
		all[i] = multiply(all[i-1], all[i-1])
	}
	return all
}()
