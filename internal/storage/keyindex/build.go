// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package keyindex

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Mirror identifies a mirror.
type Mirror [32]byte

// Head is the beginning of a batch or of a complete state.
type Head struct {
	Flags        byte
	Version, Era uint64
	// Time is when it arrived, in nanoseconds in the file.
	Time time.Time
}

// Append appends the head.
func (h Head) Append(b []byte) []byte {
	b = binary.AppendUvarint(append(b, h.Flags), h.Version)
	b = binary.AppendUvarint(b, h.Era)
	return binary.AppendUvarint(b, uint64(h.Time.UnixNano()))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Hash returns the hash of a key. It is the same in all processes.
func Hash(key []byte) uint32 { return crc32.Checksum(key, castagnoli) }

// The kinds of pieces. Batch and State are also those of [Frame].
const (
	// Declaration is the declaration of the mirror.
	Declaration = 'M'
	// Batch is an ordinary batch that is alone, or one of a run that may have a change of the
	// key.
	Batch = 'B'
	// State is a complete state, or a part of one.
	State = 'S'
	// Run is the first batch of a run of ordinary ones, and RunEnd the last one.
	Run    = 'r'
	RunEnd = 'e'
)

// Seal encrypts the section of a mirror. It is nil if the mirror is not encrypted.
type Seal func(mirror Mirror, section []byte) []byte

// Builder collects the frames of a part of a log. One goroutine uses it. The zero value is
// ready.
type Builder struct {
	sections []*section
	mirrors  map[Mirror]*section
	last     *section // the one that was used last
	size     int
}

// section is the part of one mirror.
type section struct {
	mirror       Mirror
	seal         Seal
	declarations []byte // their places
	pieces       []byte // the frames that are listed one by one, and the runs
	frames       []byte // the place of each frame and its number of changes
	hashes       []byte
	// declared, place and piece are the offsets of the last declaration, frame and piece. The next
	// offset is written as the difference to them.
	declared, place, piece int64
	run                    run
}

// run is a number of ordinary batches without anything else of the mirror between them.
type run struct {
	from, to    int64 // the places of the first and the last one
	first, last Head
	open        bool
}

// sectionSize is about how many bytes the fixed parts of a section take.
const sectionSize = 80

// Size returns about how many bytes the block takes.
func (b *Builder) Size() int { return b.size }

func (b *Builder) section(m *Mirror) *section {
	if b.last != nil && b.last.mirror == *m {
		return b.last
	}
	s := b.mirrors[*m]
	if s == nil {
		if b.mirrors == nil {
			b.mirrors = map[Mirror]*section{}
		}
		s = &section{mirror: *m}
		b.mirrors[*m], b.sections = s, append(b.sections, s)
		b.size += sectionSize
	}
	b.last = s
	return s
}

// Declare adds the declaration of a mirror. The offset is relative to the beginning of the
// part, here and below.
func (b *Builder) Declare(m Mirror, offset int64, seal Seal) {
	s := b.section(&m)
	s.end()
	s.seal = seal
	s.declarations = binary.AppendUvarint(s.declarations, uint64(offset-s.declared))
	s.declared = offset
	b.size += 3
}

// Cut ends the run of a mirror: a complete state that is not in the log begins here.
func (b *Builder) Cut(m Mirror) {
	if s := b.mirrors[m]; s != nil {
		s.end()
	}
}

// Frame is a batch, or a complete state.
type Frame struct {
	Mirror Mirror
	Seal   Seal
	Offset int64
	Kind   byte
	Head   Head
	// Hashes are those of the keys of the changes.
	Hashes []uint32
	// Ordinary means that the batch is complete and continues the one before it, so that
	// nothing but its changes, its version and its time matters.
	Ordinary bool
	// Required means that a reader of later frames has to read this one.
	Required bool
}

// Add adds a frame.
func (b *Builder) Add(f *Frame) {
	s := b.section(&f.Mirror)
	s.seal = f.Seal
	s.frames = binary.AppendUvarint(s.frames, uint64(f.Offset-s.place))
	s.frames = binary.AppendUvarint(s.frames, uint64(len(f.Hashes)))
	s.place = f.Offset
	for _, h := range f.Hashes {
		s.hashes = binary.LittleEndian.AppendUint32(s.hashes, h)
	}
	b.size += 4*len(f.Hashes) + 3
	if f.Ordinary && !f.Required {
		if !s.run.open {
			s.run = run{from: f.Offset, first: f.Head, open: true}
		}
		s.run.to, s.run.last = f.Offset, f.Head
		return
	}
	s.end()
	kind := f.Kind
	if f.Required {
		kind |= required
	}
	s.add(kind, f.Offset)
	s.pieces = f.Head.Append(s.pieces)
	b.size += 25
}

// required marks the kind of a frame that must be read.
const required = 0x80

// end ends a run.
func (s *section) end() {
	if !s.run.open {
		return
	}
	s.add(Run, s.run.from)
	s.pieces = binary.AppendUvarint(s.pieces, uint64(s.run.to-s.run.from))
	if s.pieces = s.run.first.Append(s.pieces); s.run.to > s.run.from {
		s.pieces = s.run.last.Append(s.pieces)
	}
	s.run = run{}
}

func (s *section) add(kind byte, offset int64) {
	s.pieces = binary.AppendUvarint(append(s.pieces, kind), uint64(offset-s.piece))
	s.piece = offset
}

// Append appends the block of what was added, and begins anew. Start is where the part
// begins in the log, previous is the place of the block before, 0 if there is none, and
// own is the place of this one.
func (b *Builder) Append(p []byte, start, previous, own int64) []byte {
	p = binary.AppendUvarint(p, uint64(start))
	p = binary.AppendUvarint(p, uint64(previous))
	for _, s := range b.sections {
		s.end()
		body := AppendText(make([]byte, 0, len(s.frames)+len(s.hashes)+len(s.pieces)+10), s.frames)
		body = append(AppendText(body, s.hashes), s.pieces...)
		if s.seal != nil {
			body = s.seal(s.mirror, body)
		}
		p = AppendText(append(p, s.mirror[:]...), s.declarations)
		p = AppendText(p, body)
	}
	*b = Builder{}
	return binary.LittleEndian.AppendUint64(p, uint64(own))
}
