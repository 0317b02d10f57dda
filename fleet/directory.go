// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"

	"k8s.io/client-go/rest"
)

// Directory knows which clusters there are.
type Directory interface {
	// Follow calls tell with all the clusters there are, in the order of their
	// names and each name once, as soon as that is known and again whenever
	// something about one of them has changed, until ctx ends; then it returns nil.
	// Tell may block for a moment; it is called by one goroutine at a time, which is
	// Follow's own. What tell is given belongs to who is told.
	//
	// A directory that cannot be read says nothing, so that no cluster is taken to
	// be gone because of it: it logs and tries again. An error is returned only
	// where trying again cannot help.
	Follow(ctx context.Context, tell func([]Entry)) error
}

// Entry is a cluster as a directory knows it.
type Entry struct {
	// Name is the cluster's name in the fleet. It has no slash and is not empty.
	Name string
	// Config leads to the cluster. Nil if Err is not.
	Config *rest.Config
	// Access is another string when Config leads elsewhere or has other
	// credentials, unless they are such as client-go renews by itself: a token in
	// a file, or what a plugin gets. It must not reveal them. Empty if Err is not
	// nil.
	Access string
	// Scope limits what is mirrored of the cluster. Nil: [Options.Scope].
	Scope *Scope
	// Err is why the cluster is known and cannot be reached: its credentials cannot
	// be read, say. A cluster that was reached before goes on with the credentials
	// it had.
	Err error
}
