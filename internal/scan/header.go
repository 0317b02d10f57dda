// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"fmt"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// initialEnd is the annotation of the bookmark after the initial events.
const initialEnd = "k8s.io/initial-events-end"

// Header holds the fields of an object that are needed to file it. The slices point
// into the bytes, or hold unescaped text.
type Header struct {
	APIVersion, Kind         []byte
	Namespace, Name, Version []byte
	// Found is the set of JSON members found so far, of those that may occur only once.
	Found uint16
	// Bookmark makes the scan read annotations too, for InitialEnd.
	Bookmark   bool
	InitialEnd bool
}

// These are the members that may occur only once in JSON. Decoders disagree on which of
// two counts, and no reader may see another object than the one that was filed.
const (
	FoundKind uint16 = 1 << iota
	FoundAPIVersion
	foundMetadata
	foundName
	foundNamespace
	foundUID
	foundVersion
	foundGeneration
	foundCreated
	foundDeleted
	foundLabels
	foundOwners

	FoundType = FoundKind | FoundAPIVersion
)

func member(name []byte) uint16 {
	switch string(name) {
	case "kind":
		return FoundKind
	case "apiVersion":
		return FoundAPIVersion
	case "metadata":
		return foundMetadata
	}
	return 0
}

func metadataMember(name []byte) uint16 {
	switch string(name) {
	case "name":
		return foundName
	case "namespace":
		return foundNamespace
	case "uid":
		return foundUID
	case "resourceVersion":
		return foundVersion
	case "generation":
		return foundGeneration
	case "creationTimestamp":
		return foundCreated
	case "deletionTimestamp":
		return foundDeleted
	case "labels":
		return foundLabels
	case "ownerReferences":
		return foundOwners
	}
	return 0
}

func (h *Header) once(bit uint16, name []byte) error {
	if h.Found&bit != 0 {
		return fmt.Errorf("it has the field %q twice", name)
	}
	h.Found |= bit
	return nil
}

// ScanJSON reads an object that is well-formed JSON.
func (h *Header) ScanJSON(object []byte) error {
	s := JSON{B: object}
	if !s.Begin('{') {
		return ErrJSON
	}
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		bit := member(name)
		if err := h.once(bit, name); err != nil {
			return err
		}
		switch bit {
		case FoundKind:
			h.Kind, _ = s.Text()
		case FoundAPIVersion:
			h.APIVersion, _ = s.Text()
		case foundMetadata:
			if s.Null() {
				continue
			}
			if err := h.scanJSONMetadata(&s); err != nil {
				return err
			}
		default:
			s.Value()
		}
	}
	if s.Bad {
		return ErrJSON
	}
	return nil
}

func (h *Header) scanJSONMetadata(s *JSON) error {
	s.Begin('{')
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		bit := metadataMember(name)
		if err := h.once(bit, name); err != nil {
			return err
		}
		switch bit {
		case foundName:
			h.Name, _ = s.Text()
		case foundNamespace:
			h.Namespace, _ = s.Text()
		case foundVersion:
			h.Version, _ = s.Text()
		default:
			if h.Bookmark && string(name) == "annotations" {
				value, _ := jsonEntry(s, initialEnd)
				h.InitialEnd = string(value) == "true"
				continue
			}
			s.Value()
		}
	}
	return nil
}

// jsonEntry returns one value of the map of strings that comes next.
func jsonEntry(s *JSON, key string) (value []byte, found bool) {
	if s.Null() || !s.Begin('{') {
		return nil, false
	}
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		if string(name) != key {
			s.Value()
			continue
		}
		value, _ = s.Text()
		found = true
	}
	return value, found
}

// ScanProtobuf reads an object's message. It checks all fields but descends only into
// the metadata. If the metadata occurs several times it reads all of them, as the
// generated code does.
func (h *Header) ScanProtobuf(object []byte) error {
	p := protobuf.Scanner{Data: object}
	for NextMetadata(&p) {
		m := protobuf.Scanner{Data: p.Bytes()}
		for m.Next() {
			switch m.Field {
			case 1:
				h.Name = m.Bytes()
			case 3:
				h.Namespace = m.Bytes()
			case 6:
				h.Version = m.Bytes()
			case 12:
				entry := m.Bytes()
				if !h.Bookmark {
					continue
				}
				key, value, ok := Entry(entry)
				m.Bad = m.Bad || !ok
				if string(key) == initialEnd {
					h.InitialEnd = string(value) == "true"
				}
			}
		}
		p.Bad = p.Bad || m.Bad
	}
	if p.Bad {
		return ErrProtobuf
	}
	return nil
}

// NextMetadata moves to the next field of an object that is metadata. Usually an object
// has one. The function is small enough to be inlined.
func NextMetadata(object *protobuf.Scanner) bool {
	for object.Next() {
		if object.Field == 1 {
			return true
		}
	}
	return false
}

// Entry returns the key and the value of an entry of a map of strings.
func Entry(entry []byte) (key, value []byte, ok bool) {
	p := protobuf.Scanner{Data: entry}
	for p.Next() {
		switch p.Field {
		case 1:
			key = p.Bytes()
		case 2:
			value = p.Bytes()
		}
	}
	return key, value, !p.Bad
}

// ParseVersion returns a resourceVersion as a number. It returns 0 unless the text is
// exactly how that number is written.
func ParseVersion(text []byte) uint64 {
	if len(text) == 0 || len(text) > 20 || text[0] == '0' {
		return 0
	}
	var v uint64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0
		}
		digit := uint64(c - '0')
		if v > (1<<64-1-digit)/10 {
			return 0
		}
		v = v*10 + digit
	}
	return v
}
