// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// frame is an event whose object is still encoded, in bytes that belong to the
// frameReader.
type frame struct {
	eventType []byte
	object    []byte
	// apiVersion and kind are the object's type in a protobuf envelope.
	apiVersion, kind []byte
	encoding         Encoding
	// fault is the reason why there is no object.
	fault error
}

// status decodes the status of an Error.
func (f *frame) status() (*metav1.Status, error) {
	status := &metav1.Status{}
	err := f.fault
	switch {
	case err != nil:
	case f.encoding == JSON:
		err = utiljson.Unmarshal(f.object, status)
	default:
		if status.APIVersion, status.Kind = string(f.apiVersion), string(f.kind); status.Kind == "Status" {
			err = status.Unmarshal(f.object)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("an event of type ERROR: %w", err)
	}
	if status.Kind != "Status" {
		return nil, fmt.Errorf("an event of type ERROR contains a %.100q instead of a Status", status.Kind)
	}
	return status, nil
}

// jsonFrames reads a watch in JSON: a sequence of objects.
type jsonFrames struct {
	in  *meter
	dec *jsontext.Decoder
	// large is set when the decoder's buffer has grown beyond the size that an idle
	// watch may keep.
	large bool
}

func newJSONFrames(r io.Reader) *jsonFrames {
	in := &meter{r: r}
	return &jsonFrames{in: in, dec: jsontext.NewDecoder(in, jsonOptions...)}
}

func (j *jsonFrames) next() (frame, error) {
	if j.large {
		// The decoder never shrinks.
		j.in.first = bytes.Clone(j.dec.UnreadBuffer())
		j.dec = jsontext.NewDecoder(j.in, jsonOptions...)
	}
	j.in.left = maxObject
	value, err := j.dec.ReadValue()
	if err != nil {
		return frame{}, err
	}
	j.large = len(value) > keep
	f := frame{encoding: JSON}
	s := jsonScan{b: value}
	s.begin('{')
	for name, ok := s.name(); ok; name, ok = s.name() {
		switch string(name) {
		case "type":
			if text, ok := s.text(); ok {
				f.eventType = text
			}
		case "object":
			f.object = s.value()
		default:
			s.value()
		}
	}
	if s.bad {
		return frame{}, errors.New("an event is malformed")
	}
	return f, nil
}

// protoFrames reads a watch in protobuf: a sequence of lengths and messages.
type protoFrames struct {
	// r has a small buffer: there are many watches, and most are idle.
	r    *bufio.Reader
	head [4]byte
	b    []byte
}

func newProtoFrames(r io.Reader) *protoFrames {
	return &protoFrames{r: bufio.NewReaderSize(r, 4<<10)}
}

func (p *protoFrames) next() (frame, error) {
	message, err := p.message()
	if err != nil {
		return frame{}, err
	}
	f := frame{encoding: Protobuf}
	var raw []byte
	s := protobuf.Scanner{Data: message}
	for s.Next() {
		switch s.Field {
		case 1:
			f.eventType = s.Bytes()
		case 2:
			extension := protobuf.Scanner{Data: s.Bytes()}
			for extension.Next() {
				if extension.Field == 1 {
					raw = extension.Bytes()
				}
			}
			s.Bad = s.Bad || extension.Bad
		}
	}
	if s.Bad {
		return frame{}, errProtobuf
	}
	env, err := openEnvelope(raw)
	f.apiVersion, f.kind, f.object, f.fault = env.apiVersion, env.kind, env.raw, err
	return f, nil
}

func (p *protoFrames) message() ([]byte, error) {
	if _, err := io.ReadFull(p.r, p.head[:]); err != nil {
		return nil, err // io.EOF, not wrapped, only before the first byte
	}
	n := binary.BigEndian.Uint32(p.head[:])
	if n > keep {
		p.b = nil
		return readN(p.r, uint64(n))
	}
	if int(n) > cap(p.b) {
		p.b = make([]byte, n, max(n, 4<<10))
	}
	p.b = p.b[:n]
	_, err := io.ReadFull(p.r, p.b)
	return p.b, unexpected(err)
}
