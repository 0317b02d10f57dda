// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

//go:build !linux

package replica_test

import (
	"errors"
	"os"
)

// openPty is not implemented here.
func openPty(_, _ uint16) (person, program *os.File, err error) {
	return nil, nil, errors.ErrUnsupported
}
