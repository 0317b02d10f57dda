// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"errors"
	"fmt"
)

var (
	errUntyped   = errors.New("it has no apiVersion or no kind")
	errNoName    = errors.New("it has no name")
	errNoVersion = errors.New("it has no resourceVersion")
	errSlash     = errors.New("namespace or name contains a slash")
	errNoType    = errors.New("it is protobuf, and its Kind has no Go type (New)")
	errProtobuf  = errors.New("malformed protobuf")
	errJSON      = errors.New("malformed JSON")
)

// ObjectError reports that one object could not be filed, decoded or converted. It does
// not affect the objects before and after it.
type ObjectError struct {
	// Kind and Key identify the object. They are empty where they are not known.
	Kind, Key string
	Err       error
}

func (e *ObjectError) Error() string {
	switch {
	case e.Kind == "":
		return fmt.Sprintf("wire: an object: %v", e.Err)
	case e.Key == "":
		return fmt.Sprintf("wire: a %s: %v", e.Kind, e.Err)
	default:
		return fmt.Sprintf("wire: %s %s: %v", e.Kind, e.Key, e.Err)
	}
}

func (e *ObjectError) Unwrap() error { return e.Err }

// Nameless reports whether the object has no name at all, as opposed to a name that could
// not be read.
func (e *ObjectError) Nameless() bool { return errors.Is(e.Err, errNoName) }
