// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"fmt"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// initialEnd is the annotation of the bookmark after the initial events.
const initialEnd = "k8s.io/initial-events-end"

// identity holds the fields that filing reads from an object's bytes. The slices point
// into the bytes, or hold unescaped text.
type identity struct {
	apiVersion, kind         []byte
	namespace, name, version []byte
	// found is the set of JSON members found so far, of those that may occur only once.
	found uint16
	// bookmark makes the scan read annotations too.
	bookmark   bool
	initialEnd bool
}

// These are the members that may occur only once in JSON. Decoders disagree on which of
// two counts, and no reader may see another object than the one that was filed.
const (
	foundKind uint16 = 1 << iota
	foundAPIVersion
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

	foundType = foundKind | foundAPIVersion
)

func member(name []byte) uint16 {
	switch string(name) {
	case "kind":
		return foundKind
	case "apiVersion":
		return foundAPIVersion
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

func (id *identity) once(bit uint16, name []byte) error {
	if id.found&bit != 0 {
		return fmt.Errorf("it has the field %q twice", name)
	}
	id.found |= bit
	return nil
}

// scanJSON reads an object that is well-formed JSON.
func (id *identity) scanJSON(object []byte) error {
	s := jsonScan{b: object}
	if !s.begin('{') {
		return errJSON
	}
	for name, ok := s.name(); ok; name, ok = s.name() {
		bit := member(name)
		if err := id.once(bit, name); err != nil {
			return err
		}
		switch bit {
		case foundKind:
			id.kind, _ = s.text()
		case foundAPIVersion:
			id.apiVersion, _ = s.text()
		case foundMetadata:
			if s.null() {
				continue
			}
			if err := id.scanJSONMetadata(&s); err != nil {
				return err
			}
		default:
			s.value()
		}
	}
	if s.bad {
		return errJSON
	}
	return nil
}

func (id *identity) scanJSONMetadata(s *jsonScan) error {
	s.begin('{')
	for name, ok := s.name(); ok; name, ok = s.name() {
		bit := metadataMember(name)
		if err := id.once(bit, name); err != nil {
			return err
		}
		switch bit {
		case foundName:
			id.name, _ = s.text()
		case foundNamespace:
			id.namespace, _ = s.text()
		case foundVersion:
			id.version, _ = s.text()
		default:
			if id.bookmark && string(name) == "annotations" {
				value, _ := jsonEntry(s, initialEnd)
				id.initialEnd = string(value) == "true"
				continue
			}
			s.value()
		}
	}
	return nil
}

// jsonEntry returns one value of the map of strings that comes next.
func jsonEntry(s *jsonScan, key string) (value []byte, found bool) {
	if s.null() || !s.begin('{') {
		return nil, false
	}
	for name, ok := s.name(); ok; name, ok = s.name() {
		if string(name) != key {
			s.value()
			continue
		}
		value, _ = s.text()
		found = true
	}
	return value, found
}

// scanProtobuf reads an object's message. It checks all fields but descends only into
// the metadata. If the metadata occurs several times it reads all of them, as the
// generated code does.
func (id *identity) scanProtobuf(object []byte) error {
	p := protobuf.Scanner{Data: object}
	for nextMetadata(&p) {
		m := protobuf.Scanner{Data: p.Bytes()}
		for m.Next() {
			switch m.Field {
			case 1:
				id.name = m.Bytes()
			case 3:
				id.namespace = m.Bytes()
			case 6:
				id.version = m.Bytes()
			case 12:
				entry := m.Bytes()
				if !id.bookmark {
					continue
				}
				key, value, ok := protoEntry(entry)
				m.Bad = m.Bad || !ok
				if string(key) == initialEnd {
					id.initialEnd = string(value) == "true"
				}
			}
		}
		p.Bad = p.Bad || m.Bad
	}
	if p.Bad {
		return errProtobuf
	}
	return nil
}

// nextMetadata moves to the next field of an object that is metadata. Usually an object
// has one. The function is small enough to be inlined.
func nextMetadata(object *protobuf.Scanner) bool {
	for object.Next() {
		if object.Field == 1 {
			return true
		}
	}
	return false
}

// protoEntry returns the key and the value of an entry of a map of strings.
func protoEntry(entry []byte) (key, value []byte, ok bool) {
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

// parseVersion returns a resourceVersion as a number. It returns 0 unless the text is
// exactly how that number is written.
func parseVersion(text []byte) uint64 {
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
