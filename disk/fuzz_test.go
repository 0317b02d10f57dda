// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package disk

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/watershed-project/watershed/disk/internal/keyindex"
)

// emptyFolder returns the folder of a cluster without dictionaries and keys.
func emptyFolder(path string) *folder {
	all := &files{}
	return &folder{files: all, path: path, dictionaries: newDictionaries(all, path, nil, func() {}), kind: kindOf}
}

// loadAll loads every mirror of a cluster's folder, in any way that a program would.
func loadAll(t *testing.T, path string) {
	t.Helper()
	report := emptyFolder(path).verify()
	for _, m := range report.Mirrors {
		if m.Err == nil && m.Version == 0 && m.Objects > 0 && m.Time.IsZero() {
			t.Errorf("%+v", m)
		}
	}
	must(t, os.RemoveAll(path))
}

// FuzzSegment loads a log with any content.
func FuzzSegment(f *testing.F) {
	b := head(logMagic, formatVersion)
	f.Add(b)
	b = appendFrame(b, 1, int64(len(b)), segmentFrame, 0, []byte(`{"name":"east"}`))
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, last := range []bool{false, true} {
			c := parseSegment(append(head(logMagic, formatVersion), data...), 1, last)
			if c.end > int64(headSize+len(data)) || last && c.lost && !anyFrame(data, 0, 1, 0) && c.end == headSize {
				t.Errorf("%d frames end at %d of %d", len(c.frames), c.end, len(data))
			}
		}
		folder := filepath.Join(t.TempDir(), "east")
		must(t, os.MkdirAll(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, segmentName(1)), data, 0o600))
		loadAll(t, folder)
	})
}

// FuzzFrames loads a log whose frames have right checksums and any payloads, and reads the past of
// an object. In the data each frame has a kind and a length. The place at the end of an index frame
// is right as well.
func FuzzFrames(f *testing.F) {
	first, at := []byte(`{"name":"east"}`), time.Unix(1_700_000_000, 0)
	add := func(data []byte, kind byte, payload []byte) []byte {
		return append(binary.AppendUvarint(append(data, kind), uint64(len(payload))), payload...)
	}
	declared, err := json.Marshal(declaration{Identity: identify("pods"), Link: restarts, Version: 7})
	must(f, err)
	e := newEncoder(identify("pods"), kindOf(identify("pods")), nil)
	var items []byte
	keys := []string{"shop/item-0000", "shop/item-0001", "shop/item-0002"}
	for i, key := range keys {
		items, err = e.append(items, added(key, newObject(f, key, uint64(i+1), "text")), true)
		must(f, err)
	}
	h := batchHead{version: 9, time: at}
	state := append(h.append(nil, nil, len(keys)), items...)
	data := add(nil, mirrorFrame, declared)
	f.Add(add(data, stateFrame, state))
	f.Add(add(add(data, stateFrame, state), batchFrame, state))
	for _, kind := range []byte{batchFrame, mirrorFrame, 'Q', keyindex.RunEnd} {
		var index keyindex.Builder
		place := int64(frameSize + len(first))
		index.Declare(keyindex.Mirror(digestOf(identify("pods"))), place, nil)
		place += int64(frameSize + len(declared))
		mirror := keyindex.Mirror(digestOf(identify("pods")))
		index.Add(&keyindex.Frame{Mirror: mirror, Offset: place, Kind: kind, Head: h.indexed()})
		block := index.Append(nil, headSize, 0, 0)
		f.Add(add(add(data, stateFrame, state), indexFrame, block[:len(block)-keyindex.TrailerSize]))
	}
	h.flags = openBatch
	f.Add(add(add(data, stateFrame, state), batchFrame, h.append(nil, []sum{{1}}, 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := head(logMagic, formatVersion)
		b = appendFrame(b, 1, int64(len(b)), segmentFrame, 0, first)
		r := keyindex.Fields{B: data}
		for n := 0; len(r.B) > 0 && n < 100; n++ {
			kind, payload := r.Byte(), r.Text()
			if kind == indexFrame {
				payload = binary.LittleEndian.AppendUint64(bytes.Clone(payload), uint64(len(b)))
			}
			b = appendFrame(b, 1, int64(len(b)), kind, 1, payload)
		}
		path := filepath.Join(t.TempDir(), "east")
		must(t, os.MkdirAll(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, segmentName(1)), b, 0o600))
		c := emptyFolder(path)
		for _, key := range []string{keys[0], "shop/other"} {
			for range c.ObjectHistory(identify("pods"), key, time.Time{}, at) {
			}
			_, _ = c.ObjectAt(identify("pods"), at, key)
		}
		loadAll(t, path)
	})
}

// FuzzSnapshot reads a snapshot with any chunk and any footer, and one of any bytes.
func FuzzSnapshot(f *testing.F) {
	foot := footer{Identity: identify("pods"), Name: "east", Version: 7, Chunks: []chunk{{Size: 3, Objects: 1}}}
	text, err := json.Marshal(foot)
	must(f, err)
	f.Add([]byte{1, 1, 'a'}, text)
	f.Fuzz(func(t *testing.T, content, text []byte) {
		folder := t.TempDir()
		file := bytes.Join([][]byte{head(snapshotMagic, formatVersion), content, text}, nil)
		trailer := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
		trailer = binary.LittleEndian.AppendUint32(trailer, checksum(text, trailer))
		for _, b := range [][]byte{content, append(file, trailer...)} {
			path := filepath.Join(folder, "snapshot")
			must(t, os.WriteFile(path, b, 0o600))
			snap, err := readFooter(&files{}, path)
			if err != nil {
				continue
			}
			for i := range snap.Chunks { // the checksums are part of the footer
				snap.Chunks[i].Sum = checksum(content)
			}
			_ = snap.items(&files{}, nil, "", func(*item) error { return nil })
		}
	})
}
