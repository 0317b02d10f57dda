// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// objectRead is a read of the past of one object. It reads the index frames of a segment and
// the frames that may have a change of the object. The readers of frames, [loading] and
// [history], handle these and the heads of all others, as if they had read them all.
//
// Where an index frame is missing or damaged, or does not agree with the frames, the whole
// segment is read instead. So the result is the same, with one exception: damage in frames
// that were not read is not noticed. The changes of the object are known all the same.
type objectRead struct {
	files    *format.Files
	folder   string
	identity format.Identity
	mirror   format.Digest
	key      string
	keys     format.Keys
	// at is the time that [Folder.ObjectAt] searches for. The zero time is before all states, for a
	// read that searches for nothing.
	at time.Time
	// blocks are the index frames of one segment, the last one first, and buffer is for other
	// frames. They are used again for the next segment.
	blocks [][]byte
	buffer []byte
}

// objectFrames is what a segment has of an object.
type objectFrames struct {
	// refs are the frames of the mirror up to the last index frame.
	refs []frameRef
	// number is the mirror's number in the segment after them, 0 if it has none yet.
	number uint32
	// rest are all frames after the last index frame, or of a segment that is read as a whole.
	// indexed means that other mirrors may be declared before them.
	rest    format.Contents
	indexed bool
}

// frame returns a frame: of refs, which it reads from the file of the segment, or of rest.
func (p *objectFrames) frame(file *os.File, n int) (f format.Frame, err error) {
	if n >= len(p.refs) {
		return p.rest.Frames[n-len(p.refs)], nil
	}
	ref := p.refs[n]
	f = format.Frame{Kind: ref.kind, Number: p.number, Offset: ref.Offset, Head: ref.head}
	if ref.head == nil {
		f.Payload, err = format.ReadAt(file, ref.Offset+format.FrameSize, ref.size)
	}
	return f, err
}

// errUnindexed means that the whole segment has to be read.
var errUnindexed = errors.New("the segment has no usable index")

// segment returns the frames of one segment. "length" is its length, or -1 for the last segment,
// which may still be written. It returns errUnindexed if the whole segment has to be read.
func (o *objectRead) segment(number uint64, length int64) (*objectFrames, error) {
	f, err := o.files.Open(filepath.Join(o.folder, format.SegmentName(number)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	last := length < 0
	if info, err := f.Stat(); err != nil || info.Size() < length {
		return nil, errUnindexed
	} else if last {
		length = info.Size()
	}
	start, err := format.ReadAt(f, 0, format.HeadSize)
	if err != nil || format.CheckHead(f.Name(), start, format.LogMagic) != nil {
		return nil, errUnindexed
	}
	s := &objectSegment{objectRead: o, file: f, number: number, length: length}
	blocks, end, err := s.index()
	if err != nil {
		return nil, err
	}
	for _, b := range slices.Backward(blocks) {
		if err := s.block(b); err != nil {
			return nil, errUnindexed
		}
	}
	rest, err := format.ReadAt(f, end, int(length-end))
	if err != nil {
		return nil, errUnindexed
	}
	s.found.rest, s.found.indexed = format.ParseRest(rest, end, number, last), true
	return &s.found, nil
}

// objectSegment reads one segment.
type objectSegment struct {
	*objectRead
	file   *os.File
	number uint64
	length int64
	found  objectFrames
	// seal has the mirror's data key, and is nil if the mirror is not encrypted.
	seal *format.Seal
}

const (
	// usualFrame and usualIndex are sizes that most frames and index frames do not exceed.
	usualFrame = 4 << 10
	usualIndex = 16 << 10
)

// frame reads the frame at an offset into a buffer, and checks it. It is read at once if it has
// the usual size.
func (s *objectSegment) frame(offset int64, buffer *[]byte, usual int64) (f format.Frame, next int64, err error) {
	read := func(size int) []byte {
		*buffer = slices.Grow((*buffer)[:0], size)[:size]
		n, _ := s.file.ReadAt(*buffer, offset) // an error means that there is less
		return (*buffer)[:n]
	}
	b := read(int(min(usual, max(0, s.length-offset))))
	size := format.PayloadSize(b, s.number, offset)
	if size < 0 || offset+format.FrameSize+size > s.length {
		return f, 0, errUnindexed
	}
	if int(format.FrameSize+size) > len(b) {
		b = read(int(format.FrameSize + size))
	}
	f, next, good := format.ParseFrame(b, s.number, offset)
	if !good {
		return f, 0, errUnindexed
	}
	return f, next, nil
}

// index returns the index frames of the segment, the last one first, and the end of the last
// one. They cover all frames up to there. The last one of a finished segment is at its end.
func (s *objectSegment) index() (all []*keyindex.Block, end int64, err error) {
	var trailer [keyindex.TrailerSize]byte
	if _, err := s.file.ReadAt(trailer[:], s.length-keyindex.TrailerSize); err == nil {
		if place := keyindex.Own(trailer[:]); place >= format.HeadSize && place < s.length {
			all, end, _ = s.indexFrom(place) // or else it is searched for
		}
	}
	if end != s.length {
		if all, end, err = s.indexFrom(s.lastIndex()); err != nil {
			return nil, 0, errUnindexed
		}
	}
	return all, end, nil
}

// indexFrom returns the index frames from the last one on, and the end of the last one.
func (s *objectSegment) indexFrom(place int64) (all []*keyindex.Block, end int64, err error) {
	for first := true; first || place != 0; first = false {
		if len(all) == len(s.blocks) {
			s.blocks = append(s.blocks, nil)
		}
		f, next, err := s.frame(place, &s.blocks[len(all)], usualIndex)
		if err != nil || f.Kind != format.IndexFrame {
			return nil, 0, errUnindexed
		}
		b, err := keyindex.Parse(f.Payload, place)
		if err != nil || !first && all[len(all)-1].Start != next {
			return nil, 0, errUnindexed
		}
		if first {
			end = next
		}
		all = append(all, b)
		place = b.Previous
	}
	if all[len(all)-1].Start != format.HeadSize {
		return nil, 0, errUnindexed
	}
	return all, end, nil
}

// lastIndex searches for the last index frame, in a segment that is being written or was when a
// process ended. It returns its place, 0 if there is none.
func (s *objectSegment) lastIndex() (found int64) {
	place := int64(format.HeadSize)
	r := bufio.NewReaderSize(io.NewSectionReader(s.file, place, s.length-place), 64<<10)
	for {
		header, _ := r.Peek(format.FrameSize) // there is less at the end
		size := format.PayloadSize(header, s.number, place)
		if size < 0 || place+format.FrameSize+size > s.length {
			break
		}
		if header[8] == format.IndexFrame {
			found = place
		}
		if _, err := r.Discard(int(format.FrameSize + size)); err != nil {
			break
		}
		place += format.FrameSize + size
	}
	return found
}

// block adds the frames of a block.
func (s *objectSegment) block(b *keyindex.Block) error {
	section, err := b.Section(keyindex.Mirror(s.mirror))
	if err != nil || section == nil {
		return err
	}
	// The first declaration of the segment has the key of an encrypted section.
	for _, place := range section.Declarations {
		f, _, err := s.frame(place, &s.buffer, usualFrame)
		if err != nil {
			return err
		}
		var d format.Declaration
		if err := json.Unmarshal(f.Payload, &d); err != nil || f.Kind != format.MirrorFrame ||
			d.Identity != s.identity {
			return errUnindexed
		}
		if d.Key != nil && s.seal == nil {
			if s.seal, err = format.OpenDataKey(s.keys, d.Key); err != nil {
				return err
			}
		}
		s.found.number = f.Number
	}
	if s.seal != nil {
		if err := section.Unseal(func(b2 []byte) ([]byte, error) {
			return s.seal.Decrypt(b2, format.Associated(s.mirror, "", uint64(b.Start)))
		}); err != nil {
			return err
		}
	}
	pieces, err := section.Pieces(keyindex.Hash([]byte(s.key)))
	for n := 0; n < len(pieces) && err == nil; n++ {
		p := &pieces[n]
		switch {
		case p.Kind == keyindex.Run && !s.at.Before(p.Head.Time) && s.at.Before(p.Last.Time):
			// The state of the time is within the run.
			for ; pieces[n].Kind != keyindex.RunEnd; n++ {
			}
			err = s.expand(p.Offset, p.End)
		case p.Read:
			err = s.add(p.Offset, p.Kind)
		default:
			s.skip(p)
		}
	}
	return err
}

// place returns the place of an offset in the log.
func (s *objectSegment) place(offset int64) format.Position {
	return format.Position{Segment: s.number, Offset: offset}
}

// add adds a frame that has to be read.
func (s *objectSegment) add(offset int64, kind byte) error {
	f, _, err := s.frame(offset, &s.buffer, usualFrame)
	if err == nil && f.Kind != kind {
		err = errUnindexed
	}
	s.found.refs = append(s.found.refs, frameRef{Position: s.place(offset), size: len(f.Payload), kind: kind})
	return err
}

// skip adds the head of a frame that need not be read.
func (s *objectSegment) skip(p *keyindex.Piece) {
	kind := p.Kind
	if kind == keyindex.Run || kind == keyindex.RunEnd {
		kind = format.BatchFrame
	}
	head := p.Head
	s.found.refs = append(s.found.refs, frameRef{Position: s.place(p.Offset), kind: kind, head: &head})
}

// expand adds the batches of a run.
func (s *objectSegment) expand(from, to int64) error {
	number := uint32(0)
	for place := from; place <= to; {
		f, next, err := s.frame(place, &s.buffer, usualFrame)
		if err != nil {
			return err
		}
		if place == from {
			number = f.Number
		}
		if f.Number == number {
			s.found.refs = append(s.found.refs, frameRef{Position: s.place(place), size: len(f.Payload), kind: f.Kind})
		}
		place = next
	}
	return nil
}
