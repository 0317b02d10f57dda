// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"

	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// The kinds of frames. A reader leaves out a frame of a kind that it does not know if the
// kind is a lower-case letter, and counts any other one as damage.
const (
	// SegmentFrame is the first frame of a segment: a [SegmentHeader].
	SegmentFrame = 'H'
	// MirrorFrame declares a mirror before its first frame in the segment: a [Declaration].
	MirrorFrame = 'M'
	// BatchFrame is a batch of changes, or a part of one.
	BatchFrame = 'B'
	// StateFrame is the complete state of a small mirror, or a part of it.
	StateFrame = 'S'
	// IndexFrame is the index by key of the frames since the index frame before it, a block of
	// package keyindex. Its number is 0. Older programs of the same format leave it out.
	IndexFrame = 'k'
	// DamagedFrame stands for a frame with a wrong checksum. It is never written.
	DamagedFrame = 'X'
)

// skippable reports whether frames of a kind can be left out.
func skippable(kind byte) bool { return 'a' <= kind && kind <= 'z' }

// Frame is a unit of a log: a payload with a checksum.
type Frame struct {
	Kind byte
	// Number is the mirror's number in the segment, 0 for the segment's header.
	Number  uint32
	Offset  int64
	Payload []byte
	// Head is the beginning of a batch or state whose payload was not read.
	Head *keyindex.Head
}

// AppendFrame appends a frame. The checksum of its header covers its place, so that a
// frame of another file is not accepted here.
func AppendFrame(b []byte, segment uint64, offset int64, kind byte, number uint32, payload []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, number)
	b = append(b, kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, Checksum(payload))
	b = binary.LittleEndian.AppendUint32(b, headerSum(b[at:], segment, offset))
	return append(b, payload...)
}

func headerSum(header []byte, segment uint64, offset int64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], segment)
	binary.LittleEndian.PutUint64(place[8:], uint64(offset))
	return Checksum(header[:FrameSize-4], place[:])
}

// ParseFrame parses the frame at the beginning of data, which has the bytes of a segment from an
// offset on. Next is 0 if the header is wrong or the payload is truncated, and otherwise the
// offset of the next frame. Good reports whether the payload is right, too.
func ParseFrame(data []byte, segment uint64, offset int64) (f Frame, next int64, good bool) {
	size := PayloadSize(data, segment, offset)
	if size < 0 || size > int64(len(data))-FrameSize {
		return Frame{}, 0, false
	}
	f = Frame{
		Kind: data[8], Number: binary.LittleEndian.Uint32(data[4:]), Offset: offset,
		Payload: data[FrameSize : FrameSize+size],
	}
	return f, offset + FrameSize + size, binary.LittleEndian.Uint32(data[12:]) == Checksum(f.Payload)
}

// PayloadSize returns the size of a payload by the header of its frame, -1 if the header is
// wrong.
func PayloadSize(header []byte, segment uint64, offset int64) int64 {
	if len(header) < FrameSize || binary.LittleEndian.Uint32(header[16:]) != headerSum(header, segment, offset) {
		return -1
	}
	if size := int64(binary.LittleEndian.Uint32(header)); size <= maxFrame {
		return size
	}
	return -1
}

// Contents are the frames of a segment.
type Contents struct {
	// Frames are the frames in order, without skippable ones. One with a wrong checksum is a
	// damagedFrame.
	Frames []Frame
	// End is the length of the frames that were read.
	End int64
	// Lost means that other frames follow after end and cannot be read.
	Lost bool
	// DamagedIndexes is how many index frames have a wrong checksum.
	DamagedIndexes int
}

// ParseSegment returns the frames of a segment. A wrong frame at the end of the last
// segment is a write that was interrupted, and the frames before it are complete. Any
// other wrong frame is damage.
func ParseSegment(data []byte, segment uint64, last bool) Contents {
	return ParseRest(data[min(HeadSize, len(data)):], HeadSize, segment, last)
}

// ParseRest parses the bytes of a segment from an offset on, like parseSegment.
func ParseRest(data []byte, from int64, segment uint64, last bool) Contents {
	c := Contents{End: from}
	for c.End < from+int64(len(data)) {
		f, next, good := ParseFrame(data[c.End-from:], segment, c.End)
		kind := f.Kind
		if !good && next != 0 && kind == IndexFrame {
			c.DamagedIndexes++
		}
		switch {
		case good:
		case last && !AnyFrame(data, from, segment, max(next, c.End+1)):
			return c
		case next == 0:
			c.Lost = true
			return c
		default:
			f = Frame{Kind: DamagedFrame, Number: f.Number, Offset: f.Offset, Payload: []byte{f.Kind}}
		}
		if c.End = next; !skippable(kind) {
			c.Frames = append(c.Frames, f)
		}
	}
	return c
}

// AnyFrame reports whether there is a frame anywhere after an offset. The data is the file
// from some other offset on.
func AnyFrame(data []byte, from int64, segment uint64, offset int64) bool {
	for ; offset <= from+int64(len(data))-FrameSize; offset++ {
		if _, _, good := ParseFrame(data[offset-from:], segment, offset); good {
			return true
		}
	}
	return false
}
