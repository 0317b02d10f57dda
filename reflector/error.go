// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"errors"
	"time"
)

// Reason is what an error of a source means for the reflector.
type Reason uint8

const (
	// Unknown is anything without a meaning of its own.
	Unknown Reason = iota
	// Expired means that the version asked for is too old.
	Expired
	// TooLarge means that the version asked for is not reached yet.
	TooLarge
	// Busy means that the server asks to come back later.
	Busy
	// Refused means that nobody listens at the server's address.
	Refused
	// NotServed means that the server does not know the resource.
	NotServed
	// NotSupported means that the server does not take the parameters, such as
	// those that ask for initial events.
	NotSupported
	// Internal is an error that the server blames on itself.
	Internal
	// Undecodable means that one object could not be read.
	Undecodable
)

// String is the reason in lower case, for messages and metrics.
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

// Error is an error of a source's that the reflector understands.
type Error struct {
	Reason Reason
	// RetryAfter is how long the server asks to be left alone, 0 if it does not.
	RetryAfter time.Duration
	// Key is that of the object an Undecodable is about, "" if it is not known.
	Key string
	// Nameless says that the object of an Undecodable has no key, so that it is not one of those that are known.
	Nameless bool
	Err      error
}

// Error is that of Err, or the reason if there is none.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Reason.String()
	}
	return e.Err.Error()
}

// Unwrap is Err.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf finds the reason in err's tree.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return Unknown
}
