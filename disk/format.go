// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

// formatVersion is the version of all files. It changes when an older program could
// misread them. Format 1 has no gaps and no restores in its declarations: it is read, and
// a directory of format 1 becomes one of format 2 when it is opened.
const formatVersion = 2

const (
	// headSize is the size of a file's head: magic, version and checksum. Heads are the
	// same in all versions.
	headSize      = 16
	logMagic      = "WSHDLOG\n"
	snapshotMagic = "WSHDSNP\n"
	noteMagic     = "WSHDNOT\n"
	// frameSize is the size of the header of a frame.
	frameSize = 20
	// maxFrame limits the payload of a frame: the largest object, and some more.
	maxFrame = 40 << 20
)

var (
	errChecksum = errors.New("checksum is wrong")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// newerError is returned for a file of a newer format.
type newerError struct {
	path    string
	version uint32
}

func (e *newerError) Error() string {
	return fmt.Sprintf("%s has format %d, and this program supports formats up to %d: use the newer program or remove the file", e.path, e.version, formatVersion)
}

func checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, b := range parts {
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum
}

// head returns the head of a file.
func head(magic string, version uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

// checkHead checks the head of a file.
func checkHead(path string, b []byte, magic string) error {
	if len(b) < headSize || string(b[:8]) != magic || binary.LittleEndian.Uint32(b[12:]) != checksum(b[:12]) {
		return fmt.Errorf("%s: head: %w", path, errChecksum)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > formatVersion {
		return &newerError{path, v}
	}
	return nil
}

// noteOf returns the file of a note.
func noteOf(content []byte) []byte {
	b := binary.LittleEndian.AppendUint32(head(noteMagic, formatVersion), checksum(content))
	return append(b, content...)
}

// parseNote returns the content of the file of a note.
func parseNote(path string, b []byte) ([]byte, error) {
	if err := checkHead(path, b, noteMagic); err != nil {
		return nil, err
	}
	sum := headSize + 4
	if len(b) < sum || binary.LittleEndian.Uint32(b[headSize:]) != checksum(b[sum:]) {
		return nil, fmt.Errorf("%s: %w", path, errChecksum)
	}
	return b[sum:], nil
}

// newer reports whether a file is of a newer format, or cannot be read.
func newer(s *files, path string) bool {
	f, err := s.open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	b, err := readAt(f, 0, headSize)
	if err != nil {
		return false // it is too short to be of any format
	}
	for _, magic := range []string{logMagic, snapshotMagic, noteMagic} {
		if newer := (*newerError)(nil); errors.As(checkHead(path, b, magic), &newer) {
			return true
		}
	}
	return false
}

// The kinds of frames. A reader leaves out a frame of a kind that it does not know if the
// kind is a lower-case letter, and counts any other one as damage.
const (
	// segmentFrame is the first frame of a segment: a segmentHeader.
	segmentFrame = 'H'
	// mirrorFrame declares a mirror before its first frame in the segment: a declaration.
	mirrorFrame = 'M'
	// batchFrame is a batch of changes, or a part of one.
	batchFrame = 'B'
	// stateFrame is the complete state of a small mirror, or a part of it.
	stateFrame = 'S'
	// indexFrame is the index by key of the frames since the index frame before it, a block of
	// package keyindex. Its number is 0. Older programs of the same format leave it out.
	indexFrame = 'k'
	// damagedFrame stands for a frame with a wrong checksum. It is never written.
	damagedFrame = 'X'
)

// skippable reports whether frames of a kind can be left out.
func skippable(kind byte) bool { return 'a' <= kind && kind <= 'z' }

// frame is a unit of a log: a payload with a checksum.
type frame struct {
	kind byte
	// number is the mirror's number in the segment, 0 for the segment's header.
	number  uint32
	offset  int64
	payload []byte
	// head is the beginning of a batch or state whose payload was not read.
	head *batchHead
}

// batchHead is the beginning of a batch.
type batchHead struct {
	flags        byte
	version, era uint64
	time         time.Time
}

// appendFrame appends a frame. The checksum of its header covers its place, so that a
// frame of another file is not accepted here.
func appendFrame(b []byte, segment uint64, offset int64, kind byte, number uint32, payload []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, number)
	b = append(b, kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, checksum(payload))
	b = binary.LittleEndian.AppendUint32(b, headerSum(b[at:], segment, offset))
	return append(b, payload...)
}

func headerSum(header []byte, segment uint64, offset int64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], segment)
	binary.LittleEndian.PutUint64(place[8:], uint64(offset))
	return checksum(header[:frameSize-4], place[:])
}

// parseFrame parses the frame at the beginning of data, which has the bytes of a segment from an
// offset on. Next is 0 if the header is wrong or the payload is truncated, and otherwise the
// offset of the next frame. Good reports whether the payload is right, too.
func parseFrame(data []byte, segment uint64, offset int64) (f frame, next int64, good bool) {
	size := payloadSize(data, segment, offset)
	if size < 0 || size > int64(len(data))-frameSize {
		return frame{}, 0, false
	}
	f = frame{kind: data[8], number: binary.LittleEndian.Uint32(data[4:]), offset: offset, payload: data[frameSize : frameSize+size]}
	return f, offset + frameSize + size, binary.LittleEndian.Uint32(data[12:]) == checksum(f.payload)
}

// payloadSize returns the size of a payload by the header of its frame, -1 if the header is
// wrong.
func payloadSize(header []byte, segment uint64, offset int64) int64 {
	if len(header) < frameSize || binary.LittleEndian.Uint32(header[16:]) != headerSum(header, segment, offset) {
		return -1
	}
	if size := int64(binary.LittleEndian.Uint32(header)); size <= maxFrame {
		return size
	}
	return -1
}

// contents are the frames of a segment.
type contents struct {
	// frames are the frames in order, without skippable ones. One with a wrong checksum is a
	// damagedFrame.
	frames []frame
	// end is the length of the frames that were read.
	end int64
	// lost means that other frames follow after end and cannot be read.
	lost bool
	// damagedIndexes is how many index frames have a wrong checksum.
	damagedIndexes int
}

// parseSegment returns the frames of a segment. A wrong frame at the end of the last
// segment is a write that was interrupted, and the frames before it are complete. Any
// other wrong frame is damage.
func parseSegment(data []byte, segment uint64, last bool) contents {
	return parseRest(data[min(headSize, len(data)):], headSize, segment, last)
}

// parseRest parses the bytes of a segment from an offset on, like parseSegment.
func parseRest(data []byte, from int64, segment uint64, last bool) contents {
	c := contents{end: from}
	for c.end < from+int64(len(data)) {
		f, next, good := parseFrame(data[c.end-from:], segment, c.end)
		kind := f.kind
		if !good && next != 0 && kind == indexFrame {
			c.damagedIndexes++
		}
		switch {
		case good:
		case last && !anyFrame(data, from, segment, max(next, c.end+1)):
			return c
		case next == 0:
			c.lost = true
			return c
		default:
			f = frame{kind: damagedFrame, number: f.number, offset: f.offset, payload: []byte{f.kind}}
		}
		if c.end = next; !skippable(kind) {
			c.frames = append(c.frames, f)
		}
	}
	return c
}

// anyFrame reports whether there is a frame anywhere after an offset. The data is the file
// from some other offset on.
func anyFrame(data []byte, from int64, segment uint64, offset int64) bool {
	for ; offset <= from+int64(len(data))-frameSize; offset++ {
		if _, _, good := parseFrame(data[offset-from:], segment, offset); good {
			return true
		}
	}
	return false
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
