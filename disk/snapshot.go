// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/disk/internal/keyindex"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// trailerSize is the size of the end of a snapshot: the size of the footer and its
	// checksum.
	trailerSize    = 8
	snapshotPrefix = "snapshot-"
	// maxFooter limits the footer of a snapshot in bytes.
	maxFooter = 256 << 20
)

// footer describes the chunks before it in a snapshot.
type footer struct {
	Identity Identity `json:"identity"`
	// Name is the name of the cluster.
	Name    string    `json:"name"`
	Version uint64    `json:"version"`
	Time    time.Time `json:"time"`
	Objects int       `json:"objects"`
	// After is the place in the log where the changes after the snapshot begin.
	After        position `json:"after"`
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

// snapshotWriter writes the snapshot of one mirror.
type snapshotWriter struct {
	encoder
	foot  footer
	chunk []byte
	size  int // of a full chunk
	write func([]byte) error
	bytes int64
	// rest is called after a chunk, which was begun at began.
	rest  func(took time.Duration)
	began time.Time
}

func (w *snapshotWriter) writeAll(state *store.Snapshot[*wire.Object]) error {
	if err := w.put(head(snapshotMagic, formatVersion)); err != nil {
		return err
	}
	var c chunk
	for key, o := range state.All() {
		if c.Objects == 0 {
			c.First = key
		}
		var err error
		if w.chunk, err = w.append(w.chunk, added(key, o), true); err != nil {
			return err
		}
		if c.Objects++; len(w.chunk) < w.size {
			continue
		}
		if err := w.flush(&c); err != nil {
			return err
		}
	}
	if err := w.flush(&c); err != nil {
		return err
	}
	for _, s := range w.sums {
		w.foot.Dictionaries = append(w.foot.Dictionaries, hex.EncodeToString(s[:]))
	}
	b, err := json.Marshal(&w.foot)
	if err != nil {
		return err
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(b)))
	return w.put(binary.LittleEndian.AppendUint32(b, checksum(b)))
}

// flush writes a chunk and begins the next.
func (w *snapshotWriter) flush(c *chunk) error {
	if c.Objects == 0 {
		return nil
	}
	c.Size, c.Sum = len(w.chunk), checksum(w.chunk)
	w.foot.Chunks = append(w.foot.Chunks, *c)
	w.foot.Objects += int(c.Objects)
	err := w.put(w.chunk)
	w.chunk, *c = w.chunk[:0], chunk{}
	w.rest(time.Since(w.began))
	w.began = time.Now()
	return err
}

func (w *snapshotWriter) put(b []byte) error {
	w.bytes += int64(len(b))
	return w.write(b)
}

// snapshotName returns the name of a mirror's snapshot. Names sort in the order of the
// places in the log.
func snapshotName(id digest, after position) string {
	return snapshotNames(id) + fmt.Sprintf("%016x-%08x", after.Segment, after.Offset)
}

// segmentOf returns the segment in the name of a snapshot. It does not need the content,
// which may be damaged.
func segmentOf(name string) (uint64, bool) {
	parts := strings.Split(strings.TrimPrefix(name, snapshotPrefix), "-")
	if len(parts) != 3 {
		return 0, false
	}
	number, err := strconv.ParseUint(parts[1], 16, 64)
	return number, err == nil
}

// snapshotNames returns the prefix of the names of a mirror's snapshots.
func snapshotNames(id digest) string { return fmt.Sprintf("%s%x-", snapshotPrefix, id[:8]) }

// snapshotFile is a snapshot whose footer has been read.
type snapshotFile struct {
	path string
	size int64
	footer
}

// readFooter reads the footer of a snapshot.
func readFooter(s *files, path string) (*snapshotFile, error) {
	f, err := s.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start, err := readAt(f, 0, headSize)
	if err == nil {
		err = checkHead(path, start, snapshotMagic)
	}
	if err != nil {
		return nil, err
	}
	end := info.Size() - trailerSize
	trailer, err := readAt(f, end, trailerSize)
	if err != nil {
		return nil, err
	}
	size := int64(binary.LittleEndian.Uint32(trailer))
	if size > min(end-headSize, maxFooter) {
		return nil, fmt.Errorf("%s: footer: %w", path, errChecksum)
	}
	b, err := readAt(f, end-size, int(size))
	if err != nil {
		return nil, err
	}
	if checksum(b, trailer[:4]) != binary.LittleEndian.Uint32(trailer[4:]) {
		return nil, fmt.Errorf("%s: footer: %w", path, errChecksum)
	}
	snap := &snapshotFile{path: path, size: info.Size()}
	if err := json.Unmarshal(b, &snap.footer); err != nil {
		return nil, fmt.Errorf("%s: footer: %w", path, err)
	}
	for _, c := range snap.Chunks {
		end -= int64(c.Size)
	}
	if end-size != headSize {
		return nil, fmt.Errorf("%s: it has a gap", path)
	}
	return snap, nil
}

// items reads the chunks, and calls each for every item in key order. If only is not "", it
// reads the chunk that has this key, and calls each for its item, if there is one.
func (p *snapshotFile) items(s *files, keys Keys, only string, each func(*item) error) error {
	f, err := s.open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := decoder{only: only}
	if p.Key != nil {
		if d.seal, err = openDataKey(keys, p.Key); err != nil {
			return err
		}
	}
	for _, text := range p.Dictionaries {
		s := new(sum)
		if b, err := hex.DecodeString(text); err != nil || copy(s[:], b) != len(s) {
			return errors.New("footer names a dictionary by a malformed hash")
		}
		d.sums = append(d.sums, s)
	}
	at := int64(headSize)
	for n, c := range p.Chunks {
		if only != "" && (only < c.First || n+1 < len(p.Chunks) && only >= p.Chunks[n+1].First) {
			at += int64(c.Size)
			continue
		}
		b, err := readAt(f, at, c.Size)
		if err != nil {
			return err
		}
		if checksum(b) != c.Sum {
			return fmt.Errorf("%s: chunk at %d: %w", p.path, at, errChecksum)
		}
		items, err := d.items(&keyindex.Fields{B: b}, c.Objects)
		if err != nil {
			return fmt.Errorf("%s: chunk at %d: %w", p.path, at, err)
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
