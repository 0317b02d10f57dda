// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/internal/storage/keyindex"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// trailerSize is the size of the end of a snapshot: the size of the footer and its
	// checksum.
	trailerSize    = 8
	SnapshotPrefix = "snapshot-"
	// maxFooter limits the footer of a snapshot in bytes.
	maxFooter = 256 << 20
)

// Footer describes the chunks before it in a snapshot.
type Footer struct {
	Identity Identity `json:"identity"`
	// Name is the name of the cluster.
	Name    string    `json:"name"`
	Version uint64    `json:"version"`
	Time    time.Time `json:"time"`
	Objects int       `json:"objects"`
	// After is the place in the log where the changes after the snapshot begin.
	After        Position `json:"after"`
	Dictionaries []string `json:"dictionaries,omitempty"`
	// Restored is the last restore of the server from a backup before the state, nil if
	// there was none.
	Restored *Restored `json:"restored,omitempty"`
	Chunks   []chunk   `json:"chunks"`
	// Key is the encrypted data key of the objects, if they are encrypted.
	Key []byte `json:"key,omitempty"`
}

// chunk is a part of a snapshot: objects in key order. Chunks follow each other without
// gaps.
type chunk struct {
	Size    int    `json:"size"`
	Sum     uint32 `json:"sum"`
	Objects uint64 `json:"objects"`
	First   string `json:"first"`
}

// SnapshotWriter writes the snapshot of one mirror.
type SnapshotWriter struct {
	Encoder
	Foot  Footer
	chunk []byte
	Size  int // of a full chunk
	Write func([]byte) error
	Bytes int64
	// Rest is called after a chunk, which was begun at began.
	Rest  func(took time.Duration)
	Began time.Time
}

// WriteAll writes the snapshot of a state.
func (w *SnapshotWriter) WriteAll(state *store.Snapshot[*wire.Object]) error {
	if err := w.put(NewHead(SnapshotMagic, Version)); err != nil {
		return err
	}
	w.bases = nil
	var c chunk
	for key, o := range state.All() {
		if c.Objects == 0 {
			c.First = key
		}
		var err error
		if w.chunk, err = w.Append(w.chunk, Added(key, o), true); err != nil {
			return err
		}
		if c.Objects++; len(w.chunk) < w.Size {
			continue
		}
		if err := w.flush(&c); err != nil {
			return err
		}
	}
	if err := w.flush(&c); err != nil {
		return err
	}
	for _, s := range w.Sums {
		w.Foot.Dictionaries = append(w.Foot.Dictionaries, hex.EncodeToString(s[:]))
	}
	b, err := json.Marshal(&w.Foot)
	if err != nil {
		return err
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	return w.put(binary.LittleEndian.AppendUint32(b, Checksum(b)))
}

// flush writes a chunk and begins the next.
func (w *SnapshotWriter) flush(c *chunk) error {
	if c.Objects == 0 {
		return nil
	}
	c.Size, c.Sum = len(w.chunk), Checksum(w.chunk)
	w.Foot.Chunks = append(w.Foot.Chunks, *c)
	w.Foot.Objects += int(c.Objects)
	err := w.put(w.chunk)
	w.chunk, *c = w.chunk[:0], chunk{}
	w.Begin()
	w.Rest(time.Since(w.Began))
	w.Began = time.Now()
	return err
}

func (w *SnapshotWriter) put(b []byte) error {
	w.Bytes += int64(len(b))
	return w.Write(b)
}

// SnapshotName returns the name of a mirror's snapshot. Names sort in the order of the
// places in the log.
func SnapshotName(id Digest, after Position) string {
	return SnapshotNames(id) + fmt.Sprintf("%016x-%08x", after.Segment, after.Offset)
}

// SegmentOf returns the segment in the name of a snapshot. It does not need the content,
// which may be damaged.
func SegmentOf(name string) (uint64, bool) {
	parts := strings.Split(strings.TrimPrefix(name, SnapshotPrefix), "-")
	if len(parts) != 3 {
		return 0, false
	}
	number, err := strconv.ParseUint(parts[1], 16, 64)
	return number, err == nil
}

// SnapshotNames returns the prefix of the names of a mirror's snapshots.
func SnapshotNames(id Digest) string { return fmt.Sprintf("%s%x-", SnapshotPrefix, id[:8]) }

// SnapshotFile is a snapshot whose footer has been read.
type SnapshotFile struct {
	Path string
	Size int64
	Footer
}

// ReadFooter reads the footer of a snapshot.
func ReadFooter(s *Files, path string) (*SnapshotFile, error) {
	f, err := s.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start, err := ReadAt(f, 0, HeadSize)
	if err == nil {
		err = CheckHead(path, start, SnapshotMagic)
	}
	if err != nil {
		return nil, err
	}
	end := info.Size() - trailerSize
	trailer, err := ReadAt(f, end, trailerSize)
	if err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(trailer))
	if size > min(end-HeadSize, maxFooter) {
		return nil, fmt.Errorf("%s: footer: %w", path, ErrChecksum)
	}
	b, err := ReadAt(f, end-size, int(size))
	if err != nil {
		return nil, err
	}
	if Checksum(b, trailer[:4]) != binary.LittleEndian.Uint32(trailer[4:]) {
		return nil, fmt.Errorf("%s: footer: %w", path, ErrChecksum)
	}
	snap := &SnapshotFile{Path: path, Size: info.Size()}
	if err := json.Unmarshal(b, &snap.Footer); err != nil {
		return nil, fmt.Errorf("%s: footer: %w", path, err)
	}
	for _, c := range snap.Chunks {
		end -= int64(c.Size)
	}
	if end-size != HeadSize {
		return nil, fmt.Errorf("%s: it has a gap", path)
	}
	return snap, nil
}

// Items reads the chunks, and calls each for every item in key order. If only is not "", it
// reads the chunk that has this key, and calls each for its item, if there is one.
func (p *SnapshotFile) Items(s *Files, keys Keys, only string, each func(*Item) error) error {
	f, err := s.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := Decoder{Only: only}
	if p.Key != nil {
		if d.Seal, err = OpenDataKey(keys, p.Key); err != nil {
			return err
		}
	}
	for _, text := range p.Dictionaries {
		s := new(Sum)
		if b, err := hex.DecodeString(text); err != nil || copy(s[:], b) != len(s) {
			return errors.New("footer names a dictionary by a malformed hash")
		}
		d.Sums = append(d.Sums, s)
	}
	at := int64(HeadSize)
	for n, c := range p.Chunks {
		if only != "" && (only < c.First || n+1 < len(p.Chunks) && only >= p.Chunks[n+1].First) {
			at += int64(c.Size)
			continue
		}
		b, err := ReadAt(f, at, c.Size)
		if err != nil {
			return err
		}
		if Checksum(b) != c.Sum {
			return fmt.Errorf("%s: chunk at %d: %w", p.Path, at, ErrChecksum)
		}
		items, err := d.items(&keyindex.Fields{B: b}, c.Objects)
		if err != nil {
			return fmt.Errorf("%s: chunk at %d: %w", p.Path, at, err)
		}
		for i := range items {
			if err := each(&items[i]); err != nil {
				return err
			}
		}
		at += int64(c.Size)
	}
	return nil
}
