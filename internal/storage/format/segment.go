// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Link is how a mirror's frames continue those before a declaration.
type Link string

// The links of a [Declaration].
const (
	// Continues means that nothing is missing before the declaration.
	Continues Link = "continues"
	// Resumes means that another process wrote the frames before, and that this one began
	// with the state that they lead to.
	Resumes Link = "resumes"
	// Restarts means that changes are missing before the declaration. A complete state at
	// the declared version follows, in the log or as a snapshot.
	Restarts Link = "restarts"
)

// Declaration is the payload of a [MirrorFrame].
type Declaration struct {
	Identity Identity `json:"identity"`
	Link     Link     `json:"link"`
	// Version and Era are those of the mirror before the frames that follow.
	Version uint64 `json:"version"`
	Era     uint64 `json:"era"`
	// Open means that a relist began before the declaration and goes on.
	Open bool `json:"open,omitempty"`
	// Key is the encrypted data key of the frames that follow, if they are encrypted.
	Key []byte `json:"key,omitempty"`
	// Time is when the state of Version arrived. Older programs write it only if the declaration
	// restarts.
	Time time.Time `json:"time,omitzero"`
	// Gap is the last state that was written before the missing changes of a declaration
	// that restarts. It is nil if nothing of the mirror was stored before.
	Gap *Stamp `json:"gap,omitempty"`
	// Restored is the last restore of the server from a backup before the frames that
	// follow, nil if there was none.
	Restored *Restored `json:"restored,omitempty"`
}

// Stamp is the version and the time of a state. Both are zero if they are not known.
type Stamp struct {
	Version uint64    `json:"version"`
	Time    time.Time `json:"time,omitzero"`
}

// Restored is a restore of the server from a backup. A version up to Version may be one from
// before the restore, when it had another meaning.
type Restored struct {
	// Version is the highest version that the mirror had before.
	Version uint64 `json:"version"`
	// Time is when the first state after the restore arrived.
	Time time.Time `json:"time"`
	// Former are versions that the mirror had before, as far as the files that were read
	// have them, in no order.
	Former []uint64 `json:"-"`
}

// Position is a place in the log of a cluster.
type Position struct {
	Segment uint64 `json:"segment"`
	Offset  int64  `json:"offset"`
}

// Before reports whether the place is before another one.
func (p Position) Before(other Position) bool {
	return p.Segment < other.Segment || p.Segment == other.Segment && p.Offset < other.Offset
}

// SegmentPrefix begins the names of the files of segments.
const SegmentPrefix = "log-"

// SegmentName returns the name of the file of a segment.
func SegmentName(number uint64) string { return fmt.Sprintf("%s%016x", SegmentPrefix, number) }

// SegmentHeader is the payload of the first frame of a segment, a [SegmentFrame].
type SegmentHeader struct {
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

// Listing is the files of a cluster's folder.
type Listing struct {
	Segments  []uint64 // in order
	Snapshots []string // names, in order
	// Unfinished are the names of files whose writing was interrupted.
	Unfinished []string
}

// List lists the files of a cluster.
func List(folder string) (l Listing, err error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), SegmentPrefix)
		number, bad := strconv.ParseUint(text, 16, 64)
		switch {
		case ok && bad == nil:
			l.Segments = append(l.Segments, number)
		case strings.HasSuffix(e.Name(), Unfinished):
			l.Unfinished = append(l.Unfinished, e.Name())
		case strings.HasPrefix(e.Name(), SnapshotPrefix):
			l.Snapshots = append(l.Snapshots, e.Name())
		}
	}
	return l, err
}

// ReadHeader reads the header of a segment of a folder.
func ReadHeader(folder string, number uint64) (h SegmentHeader, err error) {
	path := filepath.Join(folder, SegmentName(number))
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	b, err := ReadAt(f, 0, HeadSize+FrameSize)
	if err == nil {
		err = CheckHead(path, b, LogMagic)
	}
	if err != nil {
		return h, err
	}
	info, err := f.Stat()
	if err != nil {
		return h, err
	}
	size := HeadSize + FrameSize + int64(binary.LittleEndian.Uint32(b[HeadSize:]))
	if b, err = ReadAt(f, 0, int(min(size, info.Size()))); err != nil {
		return h, err
	}
	first, _, good := ParseFrame(b[HeadSize:], number, HeadSize)
	if !good || first.Kind != SegmentFrame {
		return h, fmt.Errorf("%s: header: %w", path, ErrChecksum)
	}
	return h, json.Unmarshal(first.Payload, &h)
}
