// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxHistory is how many bytes of samples a dictionary holds: more than one object of
	// each of the shapes that a resource commonly has.
	maxHistory = 32 << 10
	// codecs is what a dictionary takes in bytes besides its history: the table of S2, and
	// a decoder of zstd with its tables.
	codecs = 32<<10 + 96<<10
	// mostDictionary is the most that a dictionary takes in bytes, see [dictionary.size].
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

// dictionary holds what objects of a kind have in common. It packs in two ways. S2 takes
// 7 us to pack an object and 2 us to unpack it. Zstd takes five times as long and half
// the space.
//
// A dictionary costs its history three times, the 32 KB table of S2 and, once objects are
// packed densely, a decoder: 84 KB, and 5 KB for each processor.
type dictionary struct {
	history []byte
	fast    *s2.Dict
	// tables is the history with code tables that fit the samples, in zstd's form; nil if
	// they could not be made.
	tables []byte

	// alone packs with the dictionary and without a base.
	alone packing

	once    sync.Once
	decoder *zstd.Decoder
	// encoders exist only while objects are being packed densely.
	encoders sync.Pool

	// sum is the hash of the content, see [dictionary.Sum].
	sumOnce sync.Once
	sum     [sha256.Size]byte
}

// newDictionary makes a dictionary from samples. It returns nil if they are too small.
func newDictionary(samples [][]byte) *dictionary {
	samples = slices.Clone(samples)
	for i, raw := range samples {
		samples[i] = appendSqueezed(nil, raw)
	}
	history := choose(samples)
	fast := s2.MakeDict(history, nil)
	if fast == nil {
		return nil
	}
	d := &dictionary{history: history, fast: fast}
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
			s := newScratch()
			for i := range min(judges, len(samples)) {
				s.b = d.Encode(s.b, samples[i*len(samples)/min(judges, len(samples))])
				sum += len(s.b)
			}
			s.free()
			if least < 0 || sum < least {
				least, best = sum, with
			}
		}
		history = best
	}
	return history
}

// pack returns raw packed fast, in a slice of exactly that size; nil if that gains
// nothing.
func (d *dictionary) pack(raw []byte) []byte {
	s, squeezed := newScratch(), newScratch()
	defer s.free()
	defer squeezed.free()
	squeezed.b = appendSqueezed(squeezed.b[:0], raw)
	s.b = d.fast.Encode(s.b, squeezed.b)
	return d.checked(packedFast, s.b, raw)
}

// press is pack with dense packing.
func (d *dictionary) press(raw []byte) []byte {
	e, ok := d.encoders.Get().(*zstd.Encoder)
	if !ok {
		return nil
	}
	defer d.encoders.Put(e)
	s, squeezed := newScratch(), newScratch()
	defer s.free()
	defer squeezed.free()
	squeezed.b = appendSqueezed(squeezed.b[:0], raw)
	s.b = e.EncodeAll(squeezed.b, s.b[:0])
	return d.checked(packedDense, s.b, raw)
}

// checked makes data from a compressor's output; nil if that gains nothing. It unpacks
// the data once and compares it, because the original is not kept.
func (d *dictionary) checked(how byte, packed, raw []byte) []byte {
	if len(packed)+1 > len(raw)-len(raw)/8 {
		return nil
	}
	data := make([]byte, 1+len(packed))
	data[0] = how
	copy(data[1:], packed)
	s := newScratch()
	defer s.free()
	var err error
	if s.b, err = d.decode(s.b, data); err != nil || !bytes.Equal(s.b, raw) {
		return nil
	}
	return data
}

// decode writes the unpacked data into dst, or into a new slice if dst is too small.
func (d *dictionary) decode(dst, data []byte) ([]byte, error) {
	s := newScratch()
	defer s.free()
	var err error
	if data[0] == packedFast {
		s.b, err = d.fast.Decode(s.b, data[1:])
	} else {
		d.once.Do(d.makeDecoder)
		s.b, err = d.decoder.DecodeAll(data[1:], s.b[:0])
	}
	if err != nil {
		return nil, err
	}
	return appendExpanded(dst[:0], s.b)
}

// length returns the length before compression, with digits squeezed, read from the
// header of data.
func (d *dictionary) length(data []byte) int {
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
func (d *dictionary) newEncoder() any {
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

func (d *dictionary) makeDecoder() {
	dict := zstd.WithDecoderDictRaw(dictionaryID, d.history)
	if d.tables != nil {
		dict = zstd.WithDecoderDicts(d.tables)
	}
	// The encoder accepted the same dictionary, or nothing would have been packed.
	d.decoder, _ = zstd.NewReader(nil, dict, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxObject))
}

// size returns the bytes that the dictionary takes with a decoder, and without encoders. S2
// has a copy of the history.
func (d *dictionary) size() int { return 2*len(d.history) + len(d.tables) + codecs }
