// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// Found is what the files have of one mirror.
type Found struct {
	Identity format.Identity
	Digest   format.Digest
	// Snapshots are in the order of the log, without damaged ones.
	Snapshots []*format.SnapshotFile
	Frames    []frameRef
	// Bytes is the size of the frames after the newest complete state. Base is the segment
	// where that is, or where its changes begin, and inLog means that it is in the log.
	Bytes int64
	Base  uint64
	inLog bool
	// stateAt is where a complete state in the log begins that may not be complete yet.
	stateAt uint64
}

// Index is what the files of a cluster have, without the objects.
type Index struct {
	files  *format.Files
	folder string
	name   string // of the cluster, empty if there are no files
	format.Listing
	Mirrors map[format.Digest]*Found
	// only is the mirror that is indexed, nil for all mirrors. object, if it is not nil, restricts
	// the index to one object of that mirror.
	only   *format.Digest
	object *objectRead
	// Damaged are the errors of snapshots whose footers cannot be read, by the names of
	// the files.
	Damaged map[string]error
	// first is the first segment that was read, and until the last one to read. End is the
	// length of the last one that was read.
	first, until uint64
	End          int64
	// ends are the lengths of the segments that were read.
	ends map[uint64]int64
	// Sums are the dictionaries that the last segment names.
	Sums map[string]bool
	// Newest is the newest time of a segment, batch or state.
	Newest time.Time
	// Torn are segments without frames at the end of the log: a process ended when it had
	// created them.
	Torn []uint64
}

// listIndex returns an index of a cluster's folder for which no file has been read.
func listIndex(s *format.Files, folder string) (x *Index, err error) {
	x = &Index{files: s, folder: folder, until: math.MaxUint64, Sums: map[string]bool{}, ends: map[uint64]int64{}}
	x.Listing, err = format.List(folder)
	return x, err
}

// ReadIndex reads the footers of the snapshots, and the segments that are needed. It
// checks all checksums except those of snapshots' chunks.
func ReadIndex(s *format.Files, folder string) (*Index, error) {
	x, err := listIndex(s, folder)
	if err != nil {
		return x, err
	}
	if err := x.readSnapshots(0, math.MaxUint64); err != nil {
		return x, err
	}
	if err := x.skipTorn(); err != nil {
		return x, err
	}
	return x, x.readFrom(x.from())
}

// readSnapshots reads the footers of the snapshots that continue in some segments, instead of
// those that were read before. The footer of a snapshot of 100,000 objects takes a millisecond.
func (x *Index) readSnapshots(from, until uint64) error {
	x.Mirrors, x.Damaged = map[format.Digest]*Found{}, map[string]error{}
	for _, name := range x.Snapshots {
		if x.only != nil && !strings.HasPrefix(name, format.SnapshotNames(*x.only)) {
			continue
		}
		if number, ok := format.SegmentOf(name); ok && (number < from || number > until) {
			continue
		}
		snap, err := format.ReadFooter(x.files, filepath.Join(x.folder, name))
		newer := (*format.NewerError)(nil)
		switch {
		case errors.As(err, &newer):
			return err
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile, because it is too old
		case err != nil || name != format.SnapshotName(format.DigestOf(snap.Identity), snap.After):
			x.Damaged[name] = errors.Join(err, format.ErrChecksum)
		default:
			f := x.mirror(snap.Identity)
			f.Snapshots, f.Base, x.name = append(f.Snapshots, snap), snap.After.Segment, snap.Name
			x.reach(snap.Time)
		}
	}
	return nil
}

// readFrom reads the segments from one on, instead of those that were read before.
func (x *Index) readFrom(first uint64) error {
	x.first = first
	for _, f := range x.Mirrors {
		f.Frames = nil
	}
	for i, number := range x.Segments {
		if number < x.first || number > x.until {
			continue
		}
		if err := x.readSegment(number, i == len(x.Segments)-1); err != nil {
			return err
		}
	}
	return nil
}

// skipTorn leaves out the segments at the end that have no frames.
func (x *Index) skipTorn() error {
	for n := len(x.Segments); n > 0; n-- {
		number := x.Segments[n-1]
		if _, err := format.ReadHeader(x.folder, number); err == nil {
			return nil
		}
		data, err := x.files.ReadAll(filepath.Join(x.folder, format.SegmentName(number)))
		newer := (*format.NewerError)(nil)
		if err != nil || errors.As(format.CheckHead(format.SegmentName(number), data, format.LogMagic), &newer) ||
			format.AnyFrame(data, 0, number, 0) {
			return err
		}
		x.Segments, x.Torn = x.Segments[:n-1], append(x.Torn, number)
	}
	return nil
}

// from returns the first segment to read, by the newest header that can be read.
func (x *Index) from() uint64 {
	for _, number := range slices.Backward(x.Segments) {
		if h, err := format.ReadHeader(x.folder, number); err == nil {
			return max(h.From, x.start())
		}
	}
	return x.start()
}

// reach records that the files have a state of a time.
func (x *Index) reach(t time.Time) {
	if t.After(x.Newest) {
		x.Newest = t
	}
}

// mirror returns what was found of a mirror.
func (x *Index) mirror(id format.Identity) *Found {
	d := format.DigestOf(id)
	if x.Mirrors[d] == nil {
		x.Mirrors[d] = &Found{Identity: id, Digest: d}
	}
	return x.Mirrors[d]
}

// lose records that frames of any mirror may be lost in a segment. Where they were is not
// known, so they count as lost at its end.
func (x *Index) lose(segment uint64) {
	at := format.Position{Segment: segment, Offset: math.MaxInt64}
	for _, f := range x.Mirrors {
		f.Frames = append(f.Frames, frameRef{Position: at, kind: format.DamagedFrame})
	}
}

// errMoved is returned if a file was created or removed while the files of a running
// directory were listed.
var errMoved = errors.New("the file was created or removed meanwhile")

// readSegment adds the frames of a segment.
func (x *Index) readSegment(number uint64, last bool) error {
	length := int64(-1)
	if !last {
		// The header of the next segment is missing if that segment is.
		next, err := format.ReadHeader(x.folder, number+1)
		if _, listed := slices.BinarySearch(x.Segments, number+1); listed == errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", format.SegmentName(number+1), errMoved)
		}
		if err == nil {
			length = next.Previous
		}
	}
	part, err := x.read(number, length, last)
	if errors.Is(err, format.ErrChecksum) {
		x.lose(number)
		x.End = -1
		return nil
	}
	if err != nil {
		return err
	}
	numbers := map[uint32]*Found{}
	if part.number != 0 {
		m := x.mirror(x.object.identity)
		m.Frames = append(m.Frames, part.refs...)
		numbers[part.number] = m
	}
	part.rest.Lost = part.rest.Lost || length < 0 && !last
	x.add(number, part.rest, numbers, part.indexed)
	if last && x.object == nil {
		x.Sums = sumsOf(part.rest)
	}
	return nil
}

// read returns the frames of a segment that has a length, -1 if that is not known: those that
// concern the object, and the last ones, or all. The error is errChecksum if the head of the file
// is damaged.
func (x *Index) read(number uint64, length int64, last bool) (part *objectFrames, err error) {
	if x.object != nil && (last || length >= 0) {
		if part, err = x.object.segment(number, length); !errors.Is(err, errUnindexed) {
			return part, err
		}
	}
	data, err := x.files.ReadAll(filepath.Join(x.folder, format.SegmentName(number)))
	if err == nil {
		err = format.CheckHead(format.SegmentName(number), data, format.LogMagic)
	}
	if err != nil {
		return nil, err
	}
	size := int64(len(data))
	if length >= 0 {
		size = min(size, length)
	}
	part = &objectFrames{rest: format.ParseSegment(data[:size], number, last)}
	part.rest.Lost = part.rest.Lost || size < length
	return part, nil
}

// add adds the frames of a segment, or its last ones, to their mirrors. "numbers" has the mirrors
// that were declared before these frames, by their numbers. "others" means that other mirrors may
// have been declared there too: their batches and states are skipped.
func (x *Index) add(number uint64, c format.Contents, numbers map[uint32]*Found, others bool) {
	defer func() {
		if c.Lost {
			x.lose(number)
		}
		x.End, x.ends[number] = c.End, c.End
	}()
	for i := range c.Frames {
		f := &c.Frames[i]
		ref := frameRef{
			Position: format.Position{Segment: number, Offset: f.Offset}, size: len(f.Payload), kind: f.Kind,
		}
		switch f.Kind {
		case format.SegmentFrame:
			var h format.SegmentHeader
			if json.Unmarshal(f.Payload, &h) == nil {
				x.name = h.Name
				x.reach(h.Time)
			}
			continue
		case format.BatchFrame, format.StateFrame:
			payload := keyindex.Fields{B: f.Payload}
			x.reach(payload.Head().Time)
		case format.MirrorFrame:
			var d format.Declaration
			if json.Unmarshal(f.Payload, &d) != nil {
				x.lose(number)
				continue
			}
			m := x.mirror(d.Identity)
			if x.only != nil && m.Digest != *x.only {
				delete(x.Mirrors, m.Digest)
			}
			numbers[f.Number] = m
			if d.Link != format.Continues {
				m.stateAt = 0
			}
		}
		m := numbers[f.Number]
		if batch := f.Kind; m == nil && others {
			if f.Kind == format.DamagedFrame {
				batch = f.Payload[0]
			}
			if batch == format.BatchFrame || batch == format.StateFrame {
				continue
			}
		}
		if m == nil || f.Kind == format.DamagedFrame && !damagedBatch(f) {
			x.lose(number)
			continue
		}
		m.add(ref, f.Payload)
	}
}

// damagedBatch reports whether a damaged frame was a batch or a state, by the kind in its header.
func damagedBatch(f *format.Frame) bool {
	return f.Payload[0] == format.BatchFrame || f.Payload[0] == format.StateFrame
}

// Newest returns the snapshot that is the newest complete state, nil if that is in the log.
func (f *Found) Newest() *format.SnapshotFile {
	if f.inLog || len(f.Snapshots) == 0 {
		return nil
	}
	return f.Snapshots[len(f.Snapshots)-1]
}

// File returns the name of the newest complete state, empty if it is in the log.
func (f *Found) File() string {
	if s := f.Newest(); s != nil {
		return filepath.Base(s.Path)
	}
	return ""
}

// DamagedSnapshot returns the name and the error of a snapshot of a mirror whose footer
// cannot be read.
func (x *Index) DamagedSnapshot(id format.Digest) (string, error) {
	for name, err := range x.Damaged {
		if strings.HasPrefix(name, format.SnapshotNames(id)) {
			return name, err
		}
	}
	return "", nil
}

// add adds a frame.
func (f *Found) add(ref frameRef, payload []byte) {
	f.Frames = append(f.Frames, ref)
	if s := f.Newest(); s != nil && ref.Before(s.After) {
		return
	}
	f.Bytes += int64(ref.size)
	if ref.kind != format.StateFrame || len(payload) == 0 {
		return
	}
	if f.stateAt == 0 {
		f.stateAt = ref.Segment
	}
	if payload[0]&format.PartialBatch == 0 {
		f.Base, f.Bytes, f.stateAt, f.inLog = f.stateAt, 0, 0, true
	}
}

// sumsOf returns the names of the dictionaries that the frames of a segment name.
func sumsOf(c format.Contents) map[string]bool {
	all := map[string]bool{}
	for i := range c.Frames {
		if f := &c.Frames[i]; f.Kind == format.BatchFrame || f.Kind == format.StateFrame {
			d := format.Decoder{}
			_, _, _ = d.Batch(f.Payload) // the dictionaries are at its beginning
			for _, s := range d.Sums {
				all[s.String()] = true
			}
		}
	}
	return all
}

// NamedBy adds the names of the dictionaries that the files of a cluster name.
func NamedBy(s *format.Files, folder string, named map[string]bool) error {
	files, err := format.List(folder)
	if err != nil {
		return err
	}
	var all []string
	for _, name := range files.Snapshots {
		snap, err := format.ReadFooter(s, filepath.Join(folder, name))
		if err != nil {
			return err
		}
		all = append(all, snap.Dictionaries...)
	}
	for i, number := range files.Segments {
		h, err := format.ReadHeader(folder, number)
		if err != nil {
			return err
		}
		if i > 0 {
			all = append(all, h.Dictionaries...)
		}
		if i < len(files.Segments)-1 {
			continue
		}
		data, err := s.ReadAll(filepath.Join(folder, format.SegmentName(number)))
		if err != nil {
			return err
		}
		all = append(all, slices.Collect(maps.Keys(sumsOf(format.ParseSegment(data, number, true))))...)
	}
	for _, name := range all {
		named[name], named[name+format.SealedSuffix] = true, true
	}
	return nil
}
