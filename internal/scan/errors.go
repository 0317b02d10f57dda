// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxKey is the maximum length of a key in bytes. Kubernetes allows 63 for a namespace
	// and 253 for a name.
	MaxKey = 1 << 10
	// maxText is how many bytes of an error's text are kept. Errors can contain text of the
	// server, and statuses keep them.
	maxText = 1 << 10
)

var (
	// ErrProtobuf is returned for bytes that are not a protobuf message.
	ErrProtobuf = errors.New("malformed protobuf")
	// ErrJSON is returned for bytes that are not the JSON of an object.
	ErrJSON = errors.New("malformed JSON")
	// ErrUntyped is returned for an object whose type is not known.
	ErrUntyped = errors.New("it has no apiVersion or no kind")
	// ErrNoName is returned for an object without a name.
	ErrNoName = errors.New("it has no name")
	// ErrLongName is returned for an object whose key is too long.
	ErrLongName = fmt.Errorf("namespace and name have more than %d bytes", MaxKey)
)

// Bounded returns err, or the beginning of its text if that is long.
func Bounded(err error) error {
	if text := err.Error(); len(text) > maxText {
		return errors.New(strings.ToValidUTF8(strings.Clone(text[:maxText]), "") + "...")
	}
	return err
}
