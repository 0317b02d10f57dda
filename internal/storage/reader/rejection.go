// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/watershed-project/watershed/internal/storage/format"
)

// Reason is why a stored mirror cannot be used.
type Reason string

// The reasons of a [Rejection].
const (
	// Absent means that nothing is stored for the identity.
	Absent Reason = "absent"
	// Mismatched means that the mirror was stored with another identity. Its files stay as
	// long as the past does.
	Mismatched Reason = "mismatched"
	// Damaged means that a checksum is wrong, or that a part is missing.
	Damaged Reason = "damaged"
	// Newer means that a newer version of this program wrote the files.
	Newer Reason = "newer"
	// Locked means that the mirror is encrypted and the key is not available.
	Locked Reason = "locked"
	// Unreadable means that the file system returned an error.
	Unreadable Reason = "unreadable"
	// Incomplete means that changes are missing at the moment of a [Folder.At].
	Incomplete Reason = "incomplete"
)

// Rejection is the error for a mirror whose stored state cannot be used. The caller lists
// the resource instead.
type Rejection struct {
	Identity format.Identity
	Reason   Reason
	// Err is the cause. It may be nil.
	Err error
}

// Error implements error.
func (r *Rejection) Error() string {
	text := fmt.Sprintf("stored %v is %s", r.Identity, r.Reason)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (r *Rejection) Unwrap() error { return r.Err }

// Reject returns the error for a mirror that cannot be loaded.
func Reject(id format.Identity, err error) *Rejection {
	r := &Rejection{Identity: id, Reason: Damaged, Err: err}
	newer, path := (*format.NewerError)(nil), (*fs.PathError)(nil)
	switch {
	case err == nil:
		r.Reason = Absent
	case errors.Is(err, format.ErrLocked):
		r.Reason = Locked
	case errors.As(err, &newer):
		r.Reason = Newer
	case errors.Is(err, fs.ErrNotExist):
	case errors.As(err, &path):
		r.Reason = Unreadable
	}
	return r
}
