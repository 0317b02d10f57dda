// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"errors"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// magic begins every protobuf body and every object in a protobuf watch.
const magic = "k8s\x00"

var errMagic = errors.New("it does not begin with the magic number of protobuf")

// envelope is runtime.Unknown: a message and its type.
type envelope struct {
	apiVersion, kind, raw []byte
}

func openEnvelope(b []byte) (envelope, error) {
	var env envelope
	b, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok {
		return env, errMagic
	}
	p := protobuf.Scanner{Data: b}
	for p.Next() {
		switch p.Field {
		case 1:
			p.Bad = !env.scanType(p.Bytes()) || p.Bad
		case 2:
			env.raw = p.Bytes()
		}
	}
	if p.Bad {
		return env, errProtobuf
	}
	return env, nil
}

// scanType reads runtime.TypeMeta.
func (e *envelope) scanType(b []byte) bool {
	p := protobuf.Scanner{Data: b}
	for p.Next() {
		switch p.Field {
		case 1:
			e.apiVersion = p.Bytes()
		case 2:
			e.kind = p.Bytes()
		}
	}
	return !p.Bad
}

// status reports whether the envelope holds an error from the API server instead of the
// requested object.
func (e *envelope) status() bool {
	return string(e.kind) == "Status" && string(e.apiVersion) == "v1"
}
