// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// ReadObject reads the response to a GET: a JSON object, or protobuf with its magic
// number and envelope. If kind is not nil, it overrides the type in the bytes.
//
// If the bytes were read but cannot be filed, the error is a [*wire.ObjectError].
func ReadObject(r io.Reader, e wire.Encoding, kind *wire.Kind) (*wire.Object, error) {
	body, err := io.ReadAll(io.LimitReader(r, buffer.MaxObject+1))
	if err == nil && len(body) > buffer.MaxObject {
		err = buffer.ErrTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("wire: read an object: %w", err)
	}
	if e != wire.Protobuf {
		return wire.NewObject(bytes.Clone(body), e, kind)
	}
	b := wire.Builder{Kind: kind}
	env, err := scan.OpenEnvelope(body)
	if err == nil {
		kind, err = b.KindOf(env.APIVersion, env.Kind)
	}
	if err != nil {
		return nil, b.Failed(&scan.Header{}, err)
	}
	return b.Protobuf(&scan.Header{}, bytes.Clone(env.Raw), kind)
}

// Nameless reports whether an object that cannot be filed has no name at all, as opposed to
// a name that could not be read. A name that is too long counts as none, because no object
// with such a name is ever filed.
func Nameless(err *wire.ObjectError) bool {
	return errors.Is(err, scan.ErrNoName) || errors.Is(err, scan.ErrLongName)
}
