// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/protobuf"
	"github.com/watershed-project/watershed/internal/scan"
)

// frame is an event whose object is still encoded, in bytes that belong to the reader.
type frame struct {
	Type   []byte
	Object []byte
	// APIVersion and Kind are the object's type in a protobuf envelope.
	APIVersion, Kind []byte
	// JSON reports whether Object is JSON. Otherwise it is protobuf.
	JSON bool
	// Fault is the reason why there is no object.
	Fault error
}

// Status decodes the status of an event of type ERROR.
func (f *frame) Status() (*metav1.Status, error) {
	status := &metav1.Status{}
	err := f.Fault
	switch {
	case err != nil:
	case f.JSON:
		err = utiljson.Unmarshal(f.Object, status)
	default:
		if status.APIVersion, status.Kind = string(f.APIVersion), string(f.Kind); status.Kind == "Status" {
			err = status.Unmarshal(f.Object)
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
	ahead ahead
	in    meter
	// dec is nil while the watch is idle.
	dec *jsontext.Decoder
	// large is set when the decoder's buffer has grown beyond the size that may be kept.
	large bool
}

// jsonDecoders are decoders without a stream: 400 bytes each, and a buffer of up to
// twice [buffer.Keep].
var jsonDecoders = sync.Pool{New: func() any { return jsontext.NewDecoder(nothing, scan.Options...) }}

// nothing is the stream of decoders and buffers that are not in use.
var nothing = strings.NewReader("")

// newJSONFrames returns a reader of a watch in JSON.
func newJSONFrames(r io.Reader) *jsonFrames {
	j := &jsonFrames{ahead: ahead{r: r}}
	j.in.r = &j.ahead
	return j
}

// Wait returns when Next has something to read, and keeps no buffer until then.
func (j *jsonFrames) Wait() {
	if len(j.in.first) > 0 || j.dec != nil && !j.release() {
		return
	}
	j.ahead.wait()
}

// release gives the decoder away. It returns false if the decoder has a part of the next
// frame.
func (j *jsonFrames) release() bool {
	if len(bytes.TrimLeft(j.dec.UnreadBuffer(), " \t\r\n")) > 0 {
		return false
	}
	if !j.large {
		j.dec.Reset(nothing, scan.Options...)
		jsonDecoders.Put(j.dec)
	}
	j.dec, j.large = nil, false
	return true
}

// Next returns the next frame, valid until the next call of a method. The error is io.EOF,
// not wrapped, if the watch ended after a complete frame.
func (j *jsonFrames) Next() (frame, error) {
	if j.large {
		// The decoder never shrinks.
		j.in.first = bytes.Clone(j.dec.UnreadBuffer())
		j.dec, j.large = nil, false
	}
	if j.dec == nil {
		j.dec = jsonDecoders.Get().(*jsontext.Decoder)
		j.dec.Reset(&j.in, scan.Options...)
	}
	j.in.left = buffer.MaxObject
	value, err := j.dec.ReadValue()
	if err != nil {
		return frame{}, err
	}
	j.large = len(value) > buffer.Keep
	f := frame{JSON: true}
	s := scan.JSON{B: value}
	s.Begin('{')
	for name, ok := s.Name(); ok; name, ok = s.Name() {
		switch string(name) {
		case "type":
			if text, ok := s.Text(); ok {
				f.Type = text
			}
		case "object":
			f.Object = s.Value()
		default:
			s.Value()
		}
	}
	if s.Bad {
		return frame{}, errors.New("an event is malformed")
	}
	return f, nil
}

// protoFrames reads a watch in protobuf: a sequence of lengths and messages.
type protoFrames struct {
	ahead ahead
	// protoBuffers is nil while the watch is idle.
	*protoBuffers
}

// protoBuffers are the buffers of a protoFrames.
type protoBuffers struct {
	r    *bufio.Reader
	head [4]byte
	b    []byte // buffer.Keep bytes at most
}

// protoIdle are buffers without a stream: 4 KB each, and a message.
var protoIdle = sync.Pool{New: func() any { return &protoBuffers{r: bufio.NewReaderSize(nothing, 4<<10)} }}

// Wait returns when Next has something to read, and keeps no buffer until then.
func (p *protoFrames) Wait() {
	if p.protoBuffers != nil {
		if p.r.Buffered() > 0 {
			return
		}
		p.release()
	}
	p.ahead.wait()
}

// release gives the buffers away. It is not a part of wait, which should need little stack.
//
//go:noinline
func (p *protoFrames) release() {
	p.r.Reset(nothing)
	protoIdle.Put(p.protoBuffers)
	p.protoBuffers = nil
}

// Next returns the next frame, valid until the next call of a method. The error is io.EOF,
// not wrapped, if the watch ended after a complete frame.
func (p *protoFrames) Next() (frame, error) {
	message, err := p.message()
	if err != nil {
		return frame{}, err
	}
	f := frame{}
	var raw []byte
	s := protobuf.Scanner{Data: message}
	for s.Next() {
		switch s.Field {
		case 1:
			f.Type = s.Bytes()
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
		return frame{}, scan.ErrProtobuf
	}
	env, err := scan.OpenEnvelope(raw)
	f.APIVersion = env.APIVersion
	f.Kind = env.Kind
	f.Object = env.Raw
	f.Fault = err
	return f, nil
}

func (p *protoFrames) message() ([]byte, error) {
	if p.protoBuffers == nil {
		p.protoBuffers = protoIdle.Get().(*protoBuffers)
		p.r.Reset(&p.ahead)
	}
	if _, err := io.ReadFull(p.r, p.head[:]); err != nil {
		return nil, err // io.EOF, not wrapped, only before the first byte
	}
	n := binary.BigEndian.Uint32(p.head[:])
	if n > buffer.Keep {
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
