// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"fmt"
	"strconv"
	"time"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// metadata is the part of an object's metadata that can be read without decoding the
// object.
type metadata struct {
	Namespace, Name, UID, ResourceVersion string
	Generation                            int64
	// Created and Deleted are zero if the object does not have them. Only an object
	// that is being deleted has Deleted.
	Created, Deleted time.Time
	Labels           map[string]string
	Owners           []owner
}

// owner is an owner reference of an object.
type owner struct {
	APIVersion, Kind, Name, UID string
	// Controller marks the owner that manages the object.
	Controller bool
}

// metadata scans the object's metadata. The caller owns the result.
func (o *Object) metadata() (metadata, error) {
	m := metadata{Namespace: o.Namespace(), Name: o.Name(), ResourceVersion: o.ResourceVersion()}
	raw, scratch := o.open()
	defer scratch.free()
	var err error
	if o.encoding == JSON {
		err = m.scanJSON(raw)
	} else {
		err = m.scanProtobuf(raw)
	}
	if err != nil {
		return metadata{}, &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: err}
	}
	return m, nil
}

// ResourceVersion returns the object's version as the API server wrote it.
func (o *Object) ResourceVersion() string {
	if o.version != 0 {
		return strconv.FormatUint(o.version, 10)
	}
	raw, scratch := o.open()
	defer scratch.free()
	var id identity
	if o.encoding == JSON {
		_ = id.scanJSON(raw) // filing has scanned the same bytes without an error
	} else {
		_ = id.scanProtobuf(raw)
	}
	return string(id.version)
}

// enterMember moves into a JSON object, to the value of one of its members. It returns
// false if the object has no such member.
func enterMember(s *jsonScan, name string) bool {
	if s.null() || !s.begin('{') {
		return false
	}
	for n, ok := s.name(); ok; n, ok = s.name() {
		if string(n) == name {
			return true
		}
		s.value()
	}
	return false
}

// scanJSON scans an object in JSON. No member occurs twice: filing has checked that.
func (m *metadata) scanJSON(object []byte) error {
	s := jsonScan{b: object}
	if !enterMember(&s, "metadata") || !s.begin('{') {
		return errJSON
	}
	for name, ok := s.name(); ok; name, ok = s.name() {
		var err error
		switch metadataMember(name) {
		case foundUID:
			m.UID = s.string()
		case foundGeneration:
			m.Generation = s.integer()
		case foundCreated:
			m.Created, err = s.time()
		case foundDeleted:
			m.Deleted, err = s.time()
		case foundLabels:
			m.Labels = s.stringMap()
		case foundOwners:
			m.Owners = s.owners()
		default:
			s.value()
		}
		if err != nil || s.bad {
			return fmt.Errorf("its %s has the wrong type", name)
		}
	}
	return nil
}

func (s *jsonScan) string() string {
	text, _ := s.text()
	return string(text)
}

func (s *jsonScan) time() (time.Time, error) {
	text, ok := s.text()
	if !ok {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, string(text))
	return t.Local(), err
}

func (s *jsonScan) stringMap() map[string]string {
	if s.null() || !s.begin('{') {
		return nil
	}
	m := map[string]string{}
	for name, ok := s.name(); ok; name, ok = s.name() {
		key := string(name)
		m[key] = s.string()
	}
	return m
}

func (s *jsonScan) owners() []owner {
	if s.null() || !s.begin('[') {
		return nil
	}
	var owners []owner
	for s.more(']') {
		var o owner
		if s.null() {
			owners = append(owners, o)
			continue
		}
		s.begin('{')
		for name, ok := s.name(); ok; name, ok = s.name() {
			switch string(name) {
			case "apiVersion":
				o.APIVersion = s.string()
			case "kind":
				o.Kind = s.string()
			case "name":
				o.Name = s.string()
			case "uid":
				o.UID = s.string()
			case "controller":
				o.Controller = string(s.value()) == "true"
			default:
				s.value()
			}
		}
		owners = append(owners, o)
	}
	return owners
}

func (m *metadata) scanProtobuf(object []byte) error {
	p := protobuf.Scanner{Data: object}
	for nextMetadata(&p) {
		meta := protobuf.Scanner{Data: p.Bytes()}
		for meta.Next() {
			m.protoField(&meta)
		}
		p.Bad = p.Bad || meta.Bad
	}
	if p.Bad {
		return errProtobuf
	}
	return nil
}

func (m *metadata) protoField(p *protobuf.Scanner) {
	switch p.Field {
	case 5:
		m.UID = string(p.Bytes())
	case 7:
		m.Generation = int64(p.Varint())
	case 8:
		m.Created = scanTime(p)
	case 9:
		m.Deleted = scanTime(p)
	case 11:
		key, value, ok := protoEntry(p.Bytes())
		p.Bad = p.Bad || !ok
		if !p.Bad {
			if m.Labels == nil {
				m.Labels = map[string]string{}
			}
			m.Labels[string(key)] = string(value)
		}
	case 13:
		m.Owners = append(m.Owners, scanOwner(p))
	}
}

// scanTime reads the current field as a metav1.Time. It ignores the nanoseconds, which
// JSON does not have.
func scanTime(p *protobuf.Scanner) time.Time {
	b := p.Bytes()
	if len(b) == 0 {
		return time.Time{}
	}
	var seconds int64
	t := protobuf.Scanner{Data: b}
	for t.Next() {
		if t.Field == 1 {
			seconds = int64(t.Varint())
		}
	}
	p.Bad = p.Bad || t.Bad
	return time.Unix(seconds, 0)
}

// scanOwner reads the current field as a metav1.OwnerReference.
func scanOwner(p *protobuf.Scanner) owner {
	var o owner
	s := protobuf.Scanner{Data: p.Bytes()}
	for s.Next() {
		switch s.Field {
		case 1:
			o.Kind = string(s.Bytes())
		case 3:
			o.Name = string(s.Bytes())
		case 4:
			o.UID = string(s.Bytes())
		case 5:
			o.APIVersion = string(s.Bytes())
		case 6:
			o.Controller = s.Varint() != 0
		}
	}
	p.Bad = p.Bad || s.Bad
	return o
}
