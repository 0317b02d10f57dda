// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"time"
)

// Reason classifies an error of a source by how the reflector reacts to it.
type Reason uint8

const (
	// Unknown is any error without one of the reasons below.
	Unknown Reason = iota
	// Expired means that the requested version is too old.
	Expired
	// TooLarge means that the server has not reached the requested version yet.
	TooLarge
	// Busy means that the server asks the client to retry later.
	Busy
	// Refused means that the connection was refused.
	Refused
	// NotServed means that the server does not have the resource.
	NotServed
	// NotSupported means that the server does not support the parameters, such as those
	// that request initial events.
	NotSupported
	// Internal is an internal error of the server.
	Internal
	// Undecodable means that one object could not be read.
	Undecodable

	reasons = iota
)

// String returns the reason in lower case, for messages and metrics.
func (r Reason) String() string {
	switch r {
	case Expired:
		return "expired"
	case TooLarge:
		return "too large version"
	case Busy:
		return "busy"
	case Refused:
		return "refused"
	case NotServed:
		return "not served"
	case NotSupported:
		return "not supported"
	case Internal:
		return "internal"
	case Undecodable:
		return "undecodable"
	default:
		return "unknown"
	}
}

// Error is an error of a source with a reason for the reflector.
type Error struct {
	Reason Reason
	// RetryAfter is how long the server asks the client to wait, 0 if it does not.
	RetryAfter time.Duration
	// Key is the key of the object that an Undecodable concerns, "" if it is not known.
	Key string
	// Nameless means that the object of an Undecodable has no key, so it is not one of
	// the known objects.
	Nameless bool
	Err      error
}

// Error returns the text of Err, or the reason if Err is nil.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Reason.String()
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first [*Error] in err's tree, [Unknown] if there is
// none.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return Unknown
}

// subject returns the key of the object that an error concerns, "" if it is not known,
// and whether the object has no key.
func subject(err error) (key string, nameless bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.Key, e.Nameless
	}
	return "", false
}
