// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Version is the version of all files. It changes when an older program could
// misread them. Format 1 has no gaps and no restores in its declarations, and format 2 has no
// differences. Both are read, and the directory becomes one of format 3 when it is opened.
const Version = 3

const (
	// HeadSize is the size of a file's head: magic, version and checksum. Heads are the
	// same in all versions.
	HeadSize = 16
	// LogMagic begins a segment of a log, SnapshotMagic a snapshot, and NoteMagic a note.
	LogMagic      = "WSHDLOG\n"
	SnapshotMagic = "WSHDSNP\n"
	NoteMagic     = "WSHDNOT\n"
	// FrameSize is the size of the header of a frame.
	FrameSize = 20
	// maxFrame limits the payload of a frame: the largest object, and some more.
	maxFrame = 40 << 20
)

// ErrChecksum means that bytes of a file are not those that were written.
var ErrChecksum = errors.New("checksum is wrong")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewerError is returned for a file of a newer format.
type NewerError struct {
	Path    string
	Version uint32
}

// Error implements error.
func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, and this program supports formats up to %d: "+
		"use the newer program, or another directory", e.Path, e.Version, Version)
}

// Checksum returns the CRC-32C of parts that follow each other.
func Checksum(parts ...[]byte) uint32 {
	var sum uint32
	for _, b := range parts {
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum
}

// NewHead returns the head of a file.
func NewHead(magic string, version uint32) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	return binary.LittleEndian.AppendUint32(b, Checksum(b))
}

// CheckHead checks the head of a file.
func CheckHead(path string, b []byte, magic string) error {
	if len(b) < HeadSize || string(b[:8]) != magic || binary.LittleEndian.Uint32(b[12:]) != Checksum(b[:12]) {
		return fmt.Errorf("%s: head: %w", path, ErrChecksum)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > Version {
		return &NewerError{Path: path, Version: v}
	}
	return nil
}

// NoteOf returns the file of a note.
func NoteOf(content []byte) []byte {
	b := binary.LittleEndian.AppendUint32(NewHead(NoteMagic, Version), Checksum(content))
	return append(b, content...)
}

// ParseNote returns the content of the file of a note.
func ParseNote(path string, b []byte) ([]byte, error) {
	if err := CheckHead(path, b, NoteMagic); err != nil {
		return nil, err
	}
	sum := HeadSize + 4
	if len(b) < sum || binary.LittleEndian.Uint32(b[HeadSize:]) != Checksum(b[sum:]) {
		return nil, fmt.Errorf("%s: %w", path, ErrChecksum)
	}
	return b[sum:], nil
}

// Newer reports whether a file is of a newer format, or cannot be read.
func Newer(s *Files, path string) bool {
	f, err := s.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	b, err := ReadAt(f, 0, HeadSize)
	if err != nil {
		return false // it is too short to be of any format
	}
	for _, magic := range []string{LogMagic, SnapshotMagic, NoteMagic} {
		if newer := (*NewerError)(nil); errors.As(CheckHead(path, b, magic), &newer) {
			return true
		}
	}
	return false
}
