// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/internal/storage/keyindex"
)

// emptyFolder returns the folder of a cluster without dictionaries and keys.
func emptyFolder(path string) *Folder {
	all := &format.Files{}
	return &Folder{
		Files: all, Path: path, Dictionaries: format.NewDictionaries(all, path, nil, func() {}), Kind: format.KindOf,
	}
}

// loadAll loads every mirror of a cluster's folder, in any way that a program would.
func loadAll(t *testing.T, path string) {
	t.Helper()
	report := emptyFolder(path).Verify()
	for _, m := range report.Mirrors {
		if m.Err == nil && m.Version == 0 && m.Objects > 0 && m.Time.IsZero() {
			t.Errorf("%+v", m)
		}
	}
	must(t, os.RemoveAll(path))
}

// FuzzSegment loads a log with any content.
func FuzzSegment(f *testing.F) {
	b := format.NewHead(format.LogMagic, format.Version)
	f.Add(b)
	b = format.AppendFrame(b, 1, int64(len(b)), format.SegmentFrame, 0, []byte(`{"name":"east"}`))
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, last := range []bool{false, true} {
			c := format.ParseSegment(append(format.NewHead(format.LogMagic, format.Version), data...), 1, last)
			if c.End > int64(format.HeadSize+len(data)) ||
				last && c.Lost && !format.AnyFrame(data, 0, 1, 0) && c.End == format.HeadSize {
				t.Errorf("%d frames end at %d of %d", len(c.Frames), c.End, len(data))
			}
		}
		folder := filepath.Join(t.TempDir(), "east")
		must(t, os.MkdirAll(folder, 0o700))
		must(t, os.WriteFile(filepath.Join(folder, format.SegmentName(1)), data, 0o600))
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
	declared, err := json.Marshal(format.Declaration{Identity: identify("pods"), Link: format.Restarts, Version: 7})
	must(f, err)
	e := format.NewEncoder(identify("pods"), format.KindOf(identify("pods")), nil)
	var items []byte
	keys := []string{"shop/item-0000", "shop/item-0001", "shop/item-0002"}
	for i, key := range keys {
		items, err = e.Append(items, format.Added(key, newObject(f, key, uint64(i+1), "text")), true)
		must(f, err)
	}
	h := keyindex.Head{Version: 9, Time: at}
	state := append(format.AppendBatch(nil, h, nil, len(keys)), items...)
	data := add(nil, format.MirrorFrame, declared)
	f.Add(add(data, format.StateFrame, state))
	f.Add(add(add(data, format.StateFrame, state), format.BatchFrame, state))
	for _, kind := range []byte{format.BatchFrame, format.MirrorFrame, 'Q', keyindex.RunEnd} {
		var index keyindex.Builder
		place := int64(format.FrameSize + len(first))
		index.Declare(keyindex.Mirror(format.DigestOf(identify("pods"))), place, nil)
		place += int64(format.FrameSize + len(declared))
		mirror := keyindex.Mirror(format.DigestOf(identify("pods")))
		index.Add(&keyindex.Frame{Mirror: mirror, Offset: place, Kind: kind, Head: h})
		block := index.Append(nil, format.HeadSize, 0, 0)
		f.Add(add(add(data, format.StateFrame, state), format.IndexFrame, block[:len(block)-keyindex.TrailerSize]))
	}
	h.Flags = format.OpenBatch
	f.Add(add(add(data, format.StateFrame, state), format.BatchFrame, format.AppendBatch(nil, h, []format.Sum{{1}}, 0)))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := format.NewHead(format.LogMagic, format.Version)
		b = format.AppendFrame(b, 1, int64(len(b)), format.SegmentFrame, 0, first)
		r := keyindex.Fields{B: data}
		for n := 0; len(r.B) > 0 && n < 100; n++ {
			kind, payload := r.Byte(), r.Text()
			if kind == format.IndexFrame {
				payload = binary.LittleEndian.AppendUint64(bytes.Clone(payload), uint64(len(b)))
			}
			b = format.AppendFrame(b, 1, int64(len(b)), kind, 1, payload)
		}
		path := filepath.Join(t.TempDir(), "east")
		must(t, os.MkdirAll(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, format.SegmentName(1)), b, 0o600))
		c := emptyFolder(path)
		for _, key := range []string{keys[0], "shop/other"} {
			for range c.ObjectHistory(identify("pods"), key, time.Time{}, at) {
			}
			_, _ = c.ObjectAt(identify("pods"), at, key)
		}
		loadAll(t, path)
	})
}
