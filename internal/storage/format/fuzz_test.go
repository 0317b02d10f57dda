// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSnapshot reads a snapshot with any chunk and any footer, and one of any bytes.
func FuzzSnapshot(f *testing.F) {
	foot := Footer{Identity: identify("pods"), Name: "east", Version: 7, Chunks: []chunk{{Size: 3, Objects: 1}}}
	text, err := json.Marshal(foot)
	must(f, err)
	f.Add([]byte{1, 1, 'a'}, text)
	f.Fuzz(func(t *testing.T, content, text []byte) {
		folder := t.TempDir()
		file := bytes.Join([][]byte{NewHead(SnapshotMagic, Version), content, text}, nil)
		trailer := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
		trailer = binary.LittleEndian.AppendUint32(trailer, Checksum(text, trailer))
		for _, b := range [][]byte{content, append(file, trailer...)} {
			path := filepath.Join(folder, "snapshot")
			must(t, os.WriteFile(path, b, 0o600))
			snap, err := ReadFooter(&Files{}, path)
			if err != nil {
				continue
			}
			for i := range snap.Chunks { // the checksums are part of the footer
				snap.Chunks[i].Sum = Checksum(content)
			}
			_ = snap.Items(&Files{}, nil, "", func(*Item) error { return nil })
		}
	})
}
