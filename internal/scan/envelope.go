// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"bytes"
	"errors"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// Magic begins every protobuf body and every object in a protobuf watch.
const Magic = "k8s\x00"

var ErrMagic = errors.New("it does not begin with the magic number of protobuf")

// Envelope is runtime.Unknown: a message and its type.
type Envelope struct {
	APIVersion, Kind, Raw []byte
}

func OpenEnvelope(b []byte) (Envelope, error) {
	var env Envelope
	b, ok := bytes.CutPrefix(b, []byte(Magic))
	if !ok {
		return env, ErrMagic
	}
	p := protobuf.Scanner{Data: b}
	for p.Next() {
		switch p.Field {
		case 1:
			p.Bad = !env.ScanType(p.Bytes()) || p.Bad
		case 2:
			env.Raw = p.Bytes()
		}
	}
	if p.Bad {
		return env, ErrProtobuf
	}
	return env, nil
}

// ScanType reads runtime.TypeMeta.
func (e *Envelope) ScanType(b []byte) bool {
	p := protobuf.Scanner{Data: b}
	for p.Next() {
		switch p.Field {
		case 1:
			e.APIVersion = p.Bytes()
		case 2:
			e.Kind = p.Bytes()
		}
	}
	return !p.Bad
}

// IsStatus reports whether the envelope holds an error from the API server instead of the
// requested object.
func (e *Envelope) IsStatus() bool {
	return string(e.Kind) == "Status" && string(e.APIVersion) == "v1"
}
