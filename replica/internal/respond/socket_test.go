// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"bufio"
	"bytes"
	"testing"
)

// FuzzFrame reads frames of any bytes: nothing but the payload of a control frame is kept.
func FuzzFrame(f *testing.F) {
	for _, frames := range []string{
		"\x89\x81\x01\x02\x03\x04x", "\x82\xfe\xff\xff\x00\x00\x00\x00", "\x81\xff\x7f", "\x88\x80\x00\x00\x00\x00",
		"\x01\x80\x00\x00\x00\x00\x80\x80\x00\x00\x00\x00",
	} {
		f.Add([]byte(frames))
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		for r := bufio.NewReader(bytes.NewReader(frames)); ; {
			kind, payload, err := readFrame(r)
			if len(payload) > maxControl || kind < closeFrame && payload != nil {
				t.Fatalf("frame %d of %q has %d bytes", kind, frames, len(payload))
			}
			if err != nil {
				return
			}
		}
	})
}
