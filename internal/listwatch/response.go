// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package listwatch is the part of a [reflector.Source] that does not depend on the HTTP
// client: the queries of lists and watches, and reading their responses as objects,
// events and errors. Package kube uses it with its own client, package compat with the
// client of the program.
//
// # What blocks
//
// [ReadList] and [Watch.Next] wait for the body. Both return when the request ends.
//
// # Bounds and ownership
//
// A list or a watch is read with one object in memory. A list fails when more than 10,000
// objects of a page cannot be read. [ReadList] leaves closing the response to the caller;
// a [Watch] closes it when it ends.
package listwatch

import "io"

// Response is a response with a success status.
type Response interface {
	// Read reads the body.
	io.Reader
	// Cancel ends the request, so that a Read that waits returns. It can be called at
	// any time.
	Cancel()
	// Close releases the response. It must not be called during a Read.
	Close()
	// Ended returns an error if the request has ended, and nil before.
	Ended() error
	// Failed returns the error of a body that cannot be read to its end.
	Failed(err error) error
}

// drainLimit is how many bytes drain reads.
const drainLimit = 4 << 10

// drain reads the rest of a body whose content is complete, usually only its end, so that
// the connection can be reused.
func drain(r Response) { _, _ = io.CopyN(io.Discard, r, drainLimit) }
