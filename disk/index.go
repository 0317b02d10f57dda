// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segmentHeader is the payload of the first frame of a segment.
type segmentHeader struct {
	// Name is the name of the cluster.
	Name string    `json:"name"`
	Time time.Time `json:"time"`
	// From is the oldest segment that is needed to restore all mirrors and their windows,
	// and Base the oldest one without their windows.
	From uint64 `json:"from"`
	Base uint64 `json:"base"`
	// Previous is the length of the segment before, -1 if it is not known. What follows
	// after that length was not completely written.
	Previous int64 `json:"previous"`
	// Dictionaries are the dictionaries that the segment before names.
	Dictionaries []string `json:"dictionaries,omitempty"`
}

// listing is the files of a cluster's folder.
type listing struct {
	segments  []uint64 // in order
	snapshots []string // names, in order
	// unfinished are the names of files whose writing was interrupted.
	unfinished []string
}

// list lists the files of a cluster.
func list(folder string) (l listing, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), segmentPrefix)
		number, bad := strconv.ParseUint(text, 16, 64)
		switch {
		case ok && bad == nil:
			l.segments = append(l.segments, number)
		case strings.HasSuffix(e.Name(), unfinished):
			l.unfinished = append(l.unfinished, e.Name())
		case strings.HasPrefix(e.Name(), snapshotPrefix):
			l.snapshots = append(l.snapshots, e.Name())
		}
	}
	return l, err
}

// found is what the files have of one mirror.
type found struct {
	identity Identity
	digest   digest
	// snapshots are in the order of the log, without damaged ones.
	snapshots []*snapshotFile
	frames    []frameRef
	// bytes is the size of the frames after the newest complete state. base is the segment
	// where that is, or where its changes begin, and inLog means that it is in the log.
	bytes int64
	base  uint64
	inLog bool
	// stateAt is where a complete state in the log begins that may not be complete yet.
	stateAt uint64
}

// index is what the files of a cluster have, without the objects.
type index struct {
	files  *files
	folder string
	name   string // of the cluster, empty if there are no files
	listing
	mirrors map[digest]*found
	// only is the mirror that is indexed, nil for all mirrors. object, if it is not nil, restricts
	// the index to one object of that mirror.
	only   *digest
	object *objectRead
	// damaged are the errors of snapshots whose footers cannot be read, by the names of
	// the files.
	damaged map[string]error
	// first is the first segment that was read, and until the last one to read. end is the
	// length of the last one that was read.
	first, until uint64
	end          int64
	// ends are the lengths of the segments that were read.
	ends map[uint64]int64
	// sums are the dictionaries that the last segment names.
	sums map[string]bool
	// newest is the newest time of a segment, batch or state.
	newest time.Time
	// torn are segments without frames at the end of the log: a process ended when it had
	// created them.
	torn []uint64
}

// listIndex returns an index of a cluster's folder for which no file has been read.
func listIndex(s *files, folder string) (x *index, err error) {
	x = &index{files: s, folder: folder, until: math.MaxUint64, sums: map[string]bool{}, ends: map[uint64]int64{}}
	x.listing, err = list(folder)
	return x, err
}

// readIndex reads the footers of the snapshots, and the segments that are needed. It
// checks all checksums except those of snapshots' chunks.
func readIndex(s *files, folder string) (*index, error) {
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
func (x *index) readSnapshots(from, until uint64) error {
	x.mirrors, x.damaged = map[digest]*found{}, map[string]error{}
	for _, name := range x.snapshots {
		if x.only != nil && !strings.HasPrefix(name, snapshotNames(*x.only)) {
			continue
		}
		if number, ok := segmentOf(name); ok && (number < from || number > until) {
			continue
		}
		snap, err := readFooter(x.files, filepath.Join(x.folder, name))
		newer := (*newerError)(nil)
		switch {
		case errors.As(err, &newer):
			return err
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile, because it is too old
		case err != nil || name != snapshotName(digestOf(snap.Identity), snap.After):
			x.damaged[name] = errors.Join(err, errChecksum)
		default:
			f := x.mirror(snap.Identity)
			f.snapshots, f.base, x.name = append(f.snapshots, snap), snap.After.Segment, snap.Name
			x.reach(snap.Time)
		}
	}
	return nil
}

// readFrom reads the segments from one on, instead of those that were read before.
func (x *index) readFrom(first uint64) error {
	x.first = first
	for _, f := range x.mirrors {
		f.frames = nil
	}
	for i, number := range x.segments {
		if number < x.first || number > x.until {
			continue
		}
		if err := x.readSegment(number, i == len(x.segments)-1); err != nil {
			return err
		}
	}
	return nil
}

// skipTorn leaves out the segments at the end that have no frames.
func (x *index) skipTorn() error {
	for n := len(x.segments); n > 0; n-- {
		number := x.segments[n-1]
		if _, err := readHeader(x.folder, number); err == nil {
			return nil
		}
		data, err := x.files.readAll(filepath.Join(x.folder, segmentName(number)))
		if newer := (*newerError)(nil); err != nil || errors.As(checkHead(segmentName(number), data, logMagic), &newer) || anyFrame(data, 0, number, 0) {
			return err
		}
		x.segments, x.torn = x.segments[:n-1], append(x.torn, number)
	}
	return nil
}

// from returns the first segment to read, by the newest header that can be read.
func (x *index) from() uint64 {
	for _, number := range slices.Backward(x.segments) {
		if h, err := readHeader(x.folder, number); err == nil {
			return max(h.From, x.segments[0])
		}
	}
	if len(x.segments) > 0 {
		return x.segments[0]
	}
	return 0
}

// reach records that the files have a state of a time.
func (x *index) reach(t time.Time) {
	if t.After(x.newest) {
		x.newest = t
	}
}

// mirror returns what was found of a mirror.
func (x *index) mirror(id Identity) *found {
	d := digestOf(id)
	if x.mirrors[d] == nil {
		x.mirrors[d] = &found{identity: id, digest: d}
	}
	return x.mirrors[d]
}

// lose records that frames of any mirror may be lost in a segment. Where they were is not
// known, so they count as lost at its end.
func (x *index) lose(segment uint64) {
	at := position{segment, math.MaxInt64}
	for _, f := range x.mirrors {
		f.frames = append(f.frames, frameRef{position: at, kind: damagedFrame})
	}
}

// errMoved is returned if a file was created or removed while the files of a running
// directory were listed.
var errMoved = errors.New("the file was created or removed meanwhile")

// readSegment adds the frames of a segment.
func (x *index) readSegment(number uint64, last bool) error {
	length := int64(-1)
	if !last {
		// The header of the next segment is missing if that segment is.
		next, err := readHeader(x.folder, number+1)
		if _, listed := slices.BinarySearch(x.segments, number+1); listed == errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", segmentName(number+1), errMoved)
		}
		if err == nil {
			length = next.Previous
		}
	}
	part, err := x.read(number, length, last)
	if errors.Is(err, errChecksum) {
		x.lose(number)
		x.end = -1
		return nil
	}
	if err != nil {
		return err
	}
	numbers := map[uint32]*found{}
	if part.number != 0 {
		m := x.mirror(x.object.identity)
		m.frames = append(m.frames, part.refs...)
		numbers[part.number] = m
	}
	part.rest.lost = part.rest.lost || length < 0 && !last
	x.add(number, part.rest, numbers, part.indexed)
	if last && x.object == nil {
		x.sums = sumsOf(part.rest)
	}
	return nil
}

// read returns the frames of a segment that has a length, -1 if that is not known: those that
// concern the object, and the last ones, or all. The error is errChecksum if the head of the file
// is damaged.
func (x *index) read(number uint64, length int64, last bool) (part *objectFrames, err error) {
	if x.object != nil && (last || length >= 0) {
		if part, err = x.object.segment(number, length); !errors.Is(err, errUnindexed) {
			return part, err
		}
	}
	data, err := x.files.readAll(filepath.Join(x.folder, segmentName(number)))
	if err == nil {
		err = checkHead(segmentName(number), data, logMagic)
	}
	if err != nil {
		return nil, err
	}
	size := int64(len(data))
	if length >= 0 {
		size = min(size, length)
	}
	part = &objectFrames{rest: parseSegment(data[:size], number, last)}
	part.rest.lost = part.rest.lost || size < length
	return part, nil
}

// add adds the frames of a segment, or its last ones, to their mirrors. "numbers" has the mirrors
// that were declared before these frames, by their numbers. "others" means that other mirrors may
// have been declared there too: their batches and states are skipped.
func (x *index) add(number uint64, c contents, numbers map[uint32]*found, others bool) {
	defer func() {
		if c.lost {
			x.lose(number)
		}
		x.end, x.ends[number] = c.end, c.end
	}()
	for i := range c.frames {
		f := &c.frames[i]
		ref := frameRef{position: position{number, f.offset}, size: len(f.payload), kind: f.kind}
		switch f.kind {
		case segmentFrame:
			var h segmentHeader
			if json.Unmarshal(f.payload, &h) == nil {
				x.name = h.Name
				x.reach(h.Time)
			}
			continue
		case batchFrame, stateFrame:
			x.reach(timeOf(f.payload))
		case mirrorFrame:
			var d declaration
			if json.Unmarshal(f.payload, &d) != nil {
				x.lose(number)
				continue
			}
			m := x.mirror(d.Identity)
			if x.only != nil && m.digest != *x.only {
				delete(x.mirrors, m.digest)
			}
			numbers[f.number] = m
			if d.Link != continues {
				m.stateAt = 0
			}
		}
		m := numbers[f.number]
		if batch := f.kind; m == nil && others {
			if f.kind == damagedFrame {
				batch = f.payload[0]
			}
			if batch == batchFrame || batch == stateFrame {
				continue
			}
		}
		if m == nil || f.kind == damagedFrame && f.payload[0] != batchFrame && f.payload[0] != stateFrame {
			x.lose(number)
			continue
		}
		m.add(ref, f.payload)
	}
}

// newest returns the snapshot that is the newest complete state, nil if that is in the log.
func (f *found) newest() *snapshotFile {
	if f.inLog || len(f.snapshots) == 0 {
		return nil
	}
	return f.snapshots[len(f.snapshots)-1]
}

// file returns the name of the newest complete state, empty if it is in the log.
func (f *found) file() string {
	if s := f.newest(); s != nil {
		return filepath.Base(s.path)
	}
	return ""
}

// damagedSnapshot returns the name and the error of a snapshot of a mirror whose footer
// cannot be read.
func (x *index) damagedSnapshot(id digest) (string, error) {
	for name, err := range x.damaged {
		if strings.HasPrefix(name, snapshotNames(id)) {
			return name, err
		}
	}
	return "", nil
}

// add adds a frame.
func (f *found) add(ref frameRef, payload []byte) {
	f.frames = append(f.frames, ref)
	if s := f.newest(); s != nil && ref.before(s.After) {
		return
	}
	f.bytes += int64(ref.size)
	if ref.kind != stateFrame || len(payload) == 0 {
		return
	}
	if f.stateAt == 0 {
		f.stateAt = ref.Segment
	}
	if payload[0]&partialBatch == 0 {
		f.base, f.bytes, f.stateAt, f.inLog = f.stateAt, 0, 0, true
	}
}

// sumsOf returns the names of the dictionaries that the frames of a segment name.
func sumsOf(c contents) map[string]bool {
	all := map[string]bool{}
	for i := range c.frames {
		if f := &c.frames[i]; f.kind == batchFrame || f.kind == stateFrame {
			d := decoder{}
			_, _, _ = d.batch(f.payload) // the dictionaries are at its beginning
			for _, s := range d.sums {
				all[dictionaryFile{*s, false}.name()] = true
			}
		}
	}
	return all
}

// namedBy adds the names of the dictionaries that the files of a cluster name.
func namedBy(s *files, folder string, named map[string]bool) error {
	x := &index{files: s, folder: folder}
	var err error
	if x.listing, err = list(folder); err != nil {
		return err
	}
	var all []string
	for _, name := range x.snapshots {
		snap, err := readFooter(s, filepath.Join(folder, name))
		if err != nil {
			return err
		}
		all = append(all, snap.Dictionaries...)
	}
	for i, number := range x.segments {
		h, err := readHeader(folder, number)
		if err != nil {
			return err
		}
		if i > 0 {
			all = append(all, h.Dictionaries...)
		}
		if i < len(x.segments)-1 {
			continue
		}
		data, err := s.readAll(filepath.Join(folder, segmentName(number)))
		if err != nil {
			return err
		}
		all = append(all, slices.Collect(maps.Keys(sumsOf(parseSegment(data, number, true))))...)
	}
	for _, name := range all {
		named[name], named[name+sealedSuffix] = true, true
	}
	return nil
}

// readHeader reads the header of a segment of a folder.
func readHeader(folder string, number uint64) (h segmentHeader, err error) {
	path := filepath.Join(folder, segmentName(number))
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	b, err := readAt(f, 0, headSize+frameSize)
	if err == nil {
		err = checkHead(path, b, logMagic)
	}
	if err != nil {
		return h, err
	}
	info, err := f.Stat()
	if err != nil {
		return h, err
	}
	size := headSize + frameSize + int64(binary.LittleEndian.Uint32(b[headSize:]))
	if b, err = readAt(f, 0, int(min(size, info.Size()))); err != nil {
		return h, err
	}
	first, _, good := parseFrame(b[headSize:], number, headSize)
	if !good || first.kind != segmentFrame {
		return h, fmt.Errorf("%s: header: %w", path, errChecksum)
	}
	return h, json.Unmarshal(first.payload, &h)
}
