// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"fmt"
	"strconv"
	"time"
)

// Meta is the part of an object's metadata that is worth reading without
// decoding the object.
type Meta struct {
	Namespace, Name, UID, ResourceVersion string
	Generation                            int64
	// Created and Deleted are zero if the object does not have them: one that is
	// not being deleted has no Deleted.
	Created, Deleted time.Time
	Labels           map[string]string
	Owners           []Owner
}

// Owner is one of the objects that an object belongs to.
type Owner struct {
	APIVersion, Kind, Name, UID string
	// Controller marks the one that manages the object.
	Controller bool
}

// Meta scans the object's metadata. It is the caller's own.
func (o *Object) Meta() (Meta, error) {
	m := Meta{Namespace: o.Namespace(), Name: o.Name(), ResourceVersion: o.ResourceVersion()}
	raw, scratch := o.open()
	defer scratch.free()
	var err error
	if o.encoding == JSON {
		err = m.scanJSON(raw)
	} else {
		err = m.scanProtobuf(raw)
	}
	if err != nil {
		return Meta{}, &ObjectError{Kind: o.kind.Kind, Key: o.key, Err: err}
	}
	return m, nil
}

// ResourceVersion is the object's version as the API server wrote it.
func (o *Object) ResourceVersion() string {
	if o.version != 0 {
		return strconv.FormatUint(o.version, 10)
	}
	raw, scratch := o.open()
	defer scratch.free()
	var id identity
	if o.encoding == JSON {
		_ = id.scanJSON(raw) // it was filed, so it can be scanned
	} else {
		_ = id.scanProtobuf(raw)
	}
	return string(id.version)
}

// enterMember goes into an object and before the value of one of its members.
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

// scanJSON relies on what filing has made sure of: no member comes twice.
func (m *Meta) scanJSON(object []byte) error {
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
			return fmt.Errorf("its %s is not what it should be", name)
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

func (s *jsonScan) owners() []Owner {
	if s.null() || !s.begin('[') {
		return nil
	}
	var owners []Owner
	for s.more(']') {
		var o Owner
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

func (m *Meta) scanProtobuf(object []byte) error {
	p := protoScan{b: object}
	for p.next() {
		if p.field != 1 {
			continue
		}
		meta := protoScan{b: p.bytes()}
		for meta.next() {
			m.protoField(&meta)
		}
		p.bad = p.bad || meta.bad
	}
	if p.bad {
		return errProtobuf
	}
	return nil
}

func (m *Meta) protoField(p *protoScan) {
	switch p.field {
	case 5:
		m.UID = string(p.bytes())
	case 7:
		m.Generation = int64(p.varint())
	case 8:
		m.Created = p.time()
	case 9:
		m.Deleted = p.time()
	case 11:
		key, value, ok := protoEntry(p.bytes())
		if p.bad = p.bad || !ok; !p.bad {
			if m.Labels == nil {
				m.Labels = map[string]string{}
			}
			m.Labels[string(key)] = string(value)
		}
	case 13:
		m.Owners = append(m.Owners, p.owner())
	}
}

// time reads metav1.Time, of which the seconds count only: JSON has no more.
func (p *protoScan) time() time.Time {
	b := p.bytes()
	if len(b) == 0 {
		return time.Time{}
	}
	var seconds int64
	t := protoScan{b: b}
	for t.next() {
		if t.field == 1 {
			seconds = int64(t.varint())
		}
	}
	p.bad = p.bad || t.bad
	return time.Unix(seconds, 0)
}

func (p *protoScan) owner() Owner {
	var o Owner
	s := protoScan{b: p.bytes()}
	for s.next() {
		switch s.field {
		case 1:
			o.Kind = string(s.bytes())
		case 3:
			o.Name = string(s.bytes())
		case 4:
			o.UID = string(s.bytes())
		case 5:
			o.APIVersion = string(s.bytes())
		case 6:
			o.Controller = s.varint() != 0
		}
	}
	p.bad = p.bad || s.bad
	return o
}
