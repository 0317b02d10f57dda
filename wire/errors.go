// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"errors"
	"fmt"

	"github.com/watershed-project/watershed/internal/scan"
)

var (
	errSlash    = errors.New("namespace or name contains a slash")
	errNoType   = errors.New("it is protobuf, and its Kind has no Go type (New)")
	errLabels   = fmt.Errorf("it has more than %d labels", scan.MostLabels)
	errLongKind = fmt.Errorf("apiVersion or kind have more than %d bytes", maxKind)
)

// maxKind is the maximum length of an apiVersion and of a kind in bytes.
const maxKind = 512

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
