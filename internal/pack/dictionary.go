// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/watershed-project/watershed/internal/buffer"
)

const (
	// Worth is the size in bytes below which objects are not packed.
	Worth = 256

	// maxHistory is how many bytes of samples a dictionary holds: more than one object of
	// each of the shapes that a resource commonly has.
	maxHistory = 32 << 10
	// codecs is what a dictionary takes in bytes besides its history: the table of S2, and
	// a decoder of zstd with its tables.
	codecs = 32<<10 + 96<<10
	// mostDictionary is the most that a dictionary takes in bytes, see [Dictionary.size].
	// The code tables of zstd take less than 4 KiB.
	mostDictionary = 3*maxHistory + 4<<10 + codecs
	// packedFast is the first byte of data that is packed with S2.
	packedFast byte = 's'
	// packedDense is the first byte of data that is packed with zstd.
	packedDense byte = 'z'
	// dictionaryID is in each dense frame. It need not distinguish dictionaries:
	// a body points to its own.
	dictionaryID = 1
)

// Dictionary holds what objects of a kind have in common. Its content never changes. It
// contains whole objects, so it is as confidential as they are. It packs in two ways. S2 takes
// 7 us to pack an object and 2 us to unpack it. Zstd takes five times as long and half
// the space.
//
// A dictionary costs its history three times, the 32 KB table of S2 and, once objects are
// packed densely, a decoder: 84 KB, and 5 KB for each CPU.
type Dictionary struct {
	history []byte
	fast    *s2.Dict
	// tables is the history with code tables that fit the samples, in zstd's form; nil if
	// they could not be made.
	tables []byte

	// alone packs with the dictionary and without a base.
	alone Packing

	once    sync.Once
	decoder *zstd.Decoder
	// encoders exist only while objects are being packed densely.
	encoders sync.Pool

	// sum is the hash of the content, see [Dictionary.Sum].
	sumOnce sync.Once
	sum     [sha256.Size]byte
}

// newDictionary makes a dictionary from samples. It returns nil if they are too small.
func newDictionary(samples [][]byte) *Dictionary {
	samples = slices.Clone(samples)
	for i, raw := range samples {
		samples[i] = appendSqueezed(nil, raw)
	}
	history := choose(samples)
	fast := s2.MakeDict(history, nil)
	if fast == nil {
		return nil
	}
	d := &Dictionary{history: history, fast: fast}
	d.alone.dict = d
	// BuildDict makes no tables if the samples have no matches or nothing but matches.
	d.tables, _ = zstd.BuildDict(zstd.BuildDictOptions{
		ID: dictionaryID, Contents: samples, History: history, Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedFastest,
	})
	d.encoders.New = d.newEncoder
	return d
}

// choose picks samples for the history one by one. Each time it tries a few and picks the
// one with which some of the others pack smallest. The end of the history is nearest to
// the data, so references to it cost least.
func choose(samples [][]byte) []byte {
	const (
		// candidates is how many samples are tried in each step.
		candidates = 6
		// judges is how many samples a candidate is tried on.
		judges = 12
	)
	var history []byte
	for len(history) < maxHistory && len(samples) > 0 {
		var best []byte
		least := -1
		for range min(candidates, len(samples)) {
			sample := samples[rand.IntN(len(samples))]
			with := append(bytes.Clone(sample[:min(len(sample), maxHistory-len(history))]), history...)
			d := s2.MakeDict(with, nil)
			if d == nil {
				return history
			}
			sum := 0
			s := buffer.NewScratch()
			for i := range min(judges, len(samples)) {
				s.B = d.Encode(s.B, samples[i*len(samples)/min(judges, len(samples))])
				sum += len(s.B)
			}
			s.Free()
			if least < 0 || sum < least {
				least, best = sum, with
			}
		}
		history = best
	}
	return history
}

// Pack returns raw packed fast, in a slice of exactly that size; nil if that gains
// nothing.
func (d *Dictionary) Pack(raw []byte) []byte {
	s, squeezed := buffer.NewScratch(), buffer.NewScratch()
	defer s.Free()
	defer squeezed.Free()
	squeezed.B = appendSqueezed(squeezed.B[:0], raw)
	s.B = d.fast.Encode(s.B, squeezed.B)
	return d.checked(packedFast, s.B, raw)
}

// packDense is [Dictionary.Pack] with dense packing.
func (d *Dictionary) packDense(raw []byte) []byte {
	e, ok := d.encoders.Get().(*zstd.Encoder)
	if !ok {
		return nil
	}
	defer d.encoders.Put(e)
	s, squeezed := buffer.NewScratch(), buffer.NewScratch()
	defer s.Free()
	defer squeezed.Free()
	squeezed.B = appendSqueezed(squeezed.B[:0], raw)
	s.B = e.EncodeAll(squeezed.B, s.B[:0])
	return d.checked(packedDense, s.B, raw)
}

// checked makes data from a compressor's output; nil if that gains nothing. It unpacks
// the data once and compares it, because the original is not kept.
func (d *Dictionary) checked(how byte, packed, raw []byte) []byte {
	if len(packed)+1 > len(raw)-len(raw)/8 {
		return nil
	}
	data := make([]byte, 1+len(packed))
	data[0] = how
	copy(data[1:], packed)
	s := buffer.NewScratch()
	defer s.Free()
	var err error
	if s.B, err = d.decode(s.B, data); err != nil || !bytes.Equal(s.B, raw) {
		return nil
	}
	return data
}

// decode writes the unpacked data into dst, or into a new slice if dst is too small.
func (d *Dictionary) decode(dst, data []byte) ([]byte, error) {
	s := buffer.NewScratch()
	defer s.Free()
	var err error
	if data[0] == packedFast {
		s.B, err = d.fast.Decode(s.B, data[1:])
	} else {
		d.once.Do(d.makeDecoder)
		s.B, err = d.decoder.DecodeAll(data[1:], s.B[:0])
	}
	if err != nil {
		return nil, err
	}
	return appendExpanded(dst[:0], s.B)
}

// length returns the length before compression, with digits squeezed, read from the
// header of data.
func (d *Dictionary) length(data []byte) int {
	if data[0] == packedFast {
		n, _ := s2.DecodedLen(data[1:])
		return n
	}
	var h zstd.Header
	_ = h.Decode(data[1:])
	return int(h.FrameContentSize)
}

// dense reports whether data was packed densely.
func dense(data []byte) bool { return data[0] == packedDense }

// newEncoder returns a *zstd.Encoder, or nil if zstd rejects the dictionary.
func (d *Dictionary) newEncoder() any {
	dict := zstd.WithEncoderDictRaw(dictionaryID, d.history)
	if d.tables != nil {
		dict = zstd.WithEncoderDict(d.tables)
	}
	e, err := zstd.NewWriter(nil, dict, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil
	}
	return e
}

func (d *Dictionary) makeDecoder() {
	dict := zstd.WithDecoderDictRaw(dictionaryID, d.history)
	if d.tables != nil {
		dict = zstd.WithDecoderDicts(d.tables)
	}
	// The encoder accepted the same dictionary, or nothing would have been packed.
	d.decoder, _ = zstd.NewReader(nil, dict, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(buffer.MaxObject))
}

// size returns the bytes that the dictionary takes with a decoder, and without encoders. S2
// has a copy of the history.
func (d *Dictionary) size() int { return 2*len(d.history) + len(d.tables) + codecs }

// Body is the stored form of an object's bytes: as they are, or packed. It never changes.
type Body struct {
	Data []byte
	// How is how the data is packed, nil if it is not.
	How *Packing
}

// bodySize is the size of a [Body] in bytes, without the data.
const bodySize = 32

// Size returns the bytes that the body takes. If the data is a difference from an earlier
// state, it includes that state. If it is a difference from another object, it does not.
func (b *Body) Size() int {
	n := bodySize + cap(b.Data)
	if b.How != nil && b.How.base != nil && !b.How.settled(b.Data) {
		n += packingSize + cap(b.How.base)
	}
	return n
}

// Settled reports whether the body was packed for an object that rarely changes: densely,
// or as a difference from data that was.
func (b *Body) Settled() bool { return b.How != nil && b.How.settled(b.Data) }

// Cell refers to the fields in which an object stores its bytes.
type Cell struct {
	Body *atomic.Pointer[Body]
	// Labels are the labels of a packed object, the zero value if they are not stored. They
	// are written before the first packed body.
	Labels *unique.Handle[string]
	// Lease counts the readers of the bytes as they arrived.
	Lease *buffer.Lease
}

// Opened is what keeps the bytes that Open has returned.
type Opened struct {
	lease   *buffer.Lease
	scratch *buffer.Scratch
}

// Free ends the use of the bytes.
func (o Opened) Free() {
	o.lease.Release()
	o.scratch.Free()
}

// Open returns the object's bytes, valid until the second result is freed.
func (c Cell) Open() ([]byte, Opened) {
	b := c.Body.Load()
	if b.How == nil {
		if c.Lease.Take() {
			return b.Data, Opened{lease: c.Lease}
		}
		// The bytes are kept, or they were packed and recycled in the meantime.
		if b = c.Body.Load(); b.How == nil {
			return b.Data, Opened{}
		}
	}
	s := buffer.NewScratch()
	s.B = b.How.Unpack(s.B, b.Data)
	return s.B, Opened{scratch: s}
}

// Packing is how data is packed: with a dictionary, or as a difference from other packed
// data. Bodies share it. It lives as long as a body needs it.
type Packing struct {
	dict *Dictionary
	// base is the data that the difference is from, packed with the dictionary; nil if
	// there is none.
	base []byte
}

// packingSize is the size of a [Packing] in bytes.
const packingSize = 32

// packedDifference is the first byte of data that is a difference. After it are the
// length of the unpacked bytes as a varint, and the difference with squeezed digits.
const packedDifference byte = 'd'

// Unpack writes the unpacked data into dst, or into a new slice if dst is too small.
func (p *Packing) Unpack(dst, data []byte) []byte {
	raw, err := p.decode(dst, data)
	if err != nil {
		// It was unpacked when it was packed, and nothing has changed it since.
		panic(fmt.Sprintf("pack: packed data is damaged: %v", err))
	}
	return raw
}

// Dictionary returns the dictionary that the data is packed with.
func (p *Packing) Dictionary() *Dictionary { return p.dict }

// Base returns the packed data that the difference is from, nil if there is none.
func (p *Packing) Base() []byte { return p.base }

func (p *Packing) decode(dst, data []byte) ([]byte, error) {
	if p.base == nil {
		return p.dict.decode(dst, data)
	}
	base := buffer.NewScratch()
	defer base.Free()
	var err error
	if base.B, err = p.dict.decode(base.B, p.base); err != nil {
		return nil, err
	}
	return patched(dst, base.B, data)
}

// patched unpacks a difference from the unpacked base.
func patched(dst, base, data []byte) ([]byte, error) {
	n, l := binary.Uvarint(data[1:])
	if l <= 0 || n > buffer.MaxObject {
		return nil, errDifference
	}
	s := buffer.NewScratch()
	defer s.Free()
	var err error
	if s.B, err = appendExpanded(s.B[:0], data[1+l:]); err != nil {
		return nil, err
	}
	if cap(dst) < int(n) {
		dst = make([]byte, 0, n)
	}
	return appendPatched(dst[:0], base, s.B, int(n))
}

// differ returns raw packed as a difference from p.base, nil if that takes more than most
// bytes.
func (p *Packing) differ(raw []byte, most int) []byte {
	base := buffer.NewScratch()
	difference := buffer.NewScratch()
	squeezed := buffer.NewScratch()
	defer base.Free()
	defer difference.Free()
	defer squeezed.Free()
	var err error
	if base.B, err = p.dict.decode(base.B, p.base); err != nil {
		return nil
	}
	var ok bool
	// Squeezing digits saves half of the difference at most.
	if difference.B, ok = appendDifference(difference.B[:0], base.B, raw, 2*most); !ok {
		return nil
	}
	squeezed.B = binary.AppendUvarint(append(squeezed.B[:0], packedDifference), uint64(len(raw)))
	if squeezed.B = appendSqueezed(squeezed.B, difference.B); len(squeezed.B) > most {
		return nil
	}
	data := append(make([]byte, 0, len(squeezed.B)), squeezed.B...)
	if difference.B, err = patched(difference.B, base.B, data); err != nil || string(difference.B) != string(raw) {
		return nil
	}
	return data
}

// Length returns the approximate length of the unpacked data.
func (p *Packing) Length(data []byte) int {
	if p.base == nil {
		return p.dict.length(data)
	}
	n, _ := binary.Uvarint(data[1:])
	return int(n)
}

// settled reports whether data was packed for an object that rarely changes: densely, or
// as a difference from data that was.
func (p *Packing) settled(data []byte) bool { return dense(p.full(data)) }

// full returns the data that is packed with the dictionary alone: the base, or data
// itself.
func (p *Packing) full(data []byte) []byte {
	if p.base != nil {
		return p.base
	}
	return data
}

// from returns how to pack a difference from b, or from the base that b differs from. It
// returns nil if that is packed with another dictionary, or is not as dense as required.
func (b *Body) from(d *Dictionary, settled bool) *Packing {
	switch {
	case b == nil || b.How == nil || b.How.dict != d || b.How.settled(b.Data) != settled:
		return nil
	case b.How.base != nil:
		return b.How
	default:
		return &Packing{dict: d, base: b.Data}
	}
}
