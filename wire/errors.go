// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"errors"
	"fmt"
	"strings"

	"github.com/watershed-project/watershed/wire/internal/scan"
)

var (
	errUntyped     = errors.New("it has no apiVersion or no kind")
	errNoName      = errors.New("it has no name")
	errNoVersion   = errors.New("it has no resourceVersion")
	errSlash       = errors.New("namespace or name contains a slash")
	errNoType      = errors.New("it is protobuf, and its Kind has no Go type (New)")
	errLongName    = fmt.Errorf("namespace and name have more than %d bytes", maxKey)
	errLongVersion = fmt.Errorf("resourceVersion has more than %d bytes", maxVersion)
	errLabels      = fmt.Errorf("it has more than %d labels", scan.MostLabels)
	errLongKind    = fmt.Errorf("apiVersion or kind have more than %d bytes", maxKind)
)

const (
	// maxKey is the maximum length of a key in bytes. Kubernetes allows 63 for a namespace
	// and 253 for a name.
	maxKey = 1 << 10
	// maxVersion is the maximum length of the version of an event in bytes. The API server
	// sends numbers.
	maxVersion = 256
	// maxKind is the maximum length of an apiVersion and of a kind in bytes.
	maxKind = 512
	// maxText is how many bytes of an error's text are kept. Errors can contain text of the
	// server, and statuses keep them.
	maxText = 1 << 10
)

// bounded returns err, or the beginning of its text if that is long.
func bounded(err error) error {
	if text := err.Error(); len(text) > maxText {
		return errors.New(strings.ToValidUTF8(strings.Clone(text[:maxText]), "") + "...")
	}
	return err
}

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
// not be read. A name that is too long counts as none, because no object with such a name
// is ever filed.
func (e *ObjectError) Nameless() bool {
	return errors.Is(e.Err, errNoName) || errors.Is(e.Err, errLongName)
}
