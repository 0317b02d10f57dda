// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta

import "fmt"

// Type is the kind of change of an object. Sources, the queue, the store, the log and all
// readers use it. Package wire has its own event types for the watch protocol. Those are
// names in a stream: one of them is an error, and none stands for a list.
type Type uint8

const (
	// Added means that the source reported a new object.
	Added Type = iota + 1
	// Updated means that the source reported a new state of an object.
	Updated
	// Deleted means that the object is gone: the source reported its deletion, or a
	// complete list does not have it.
	Deleted
	// Replaced means that the object was in a complete list. The consumer finds out
	// whether it is new, changed or the same.
	Replaced
	// Sync means that the object has not changed and is to be processed again.
	Sync
	// Bookmark does not concern an object: it carries a version that the source has
	// reached. Only [FIFO.Drain] returns it.
	Bookmark
)

// String returns the name as client-go spells it: "Added", "Updated", "Deleted",
// "Replaced", "Sync" or "Bookmark".
func (t Type) String() string {
	switch t {
	case Added:
		return "Added"
	case Updated:
		return "Updated"
	case Deleted:
		return "Deleted"
	case Replaced:
		return "Replaced"
	case Sync:
		return "Sync"
	case Bookmark:
		return "Bookmark"
	default:
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
}

// Delta is one change of one object.
type Delta[T any] struct {
	Type Type
	// Missed marks a Deleted whose final state is not known: it was inferred from a list,
	// or the final state could not be read or transformed. Object is the last known
	// state. On a Replaced or a Bookmark it means that the source has gone back to
	// Version.
	Missed bool
	// Listed marks the deltas of a complete list: its objects, the deletions that it
	// implies, those that arrived during it, and the Bookmark that ends it.
	Listed bool
	// Vague marks a Listed Bookmark of a list with an object whose key could not be read: the
	// list inferred no deletion, and known objects may not exist any more.
	Vague bool
	// Key is the object's key, computed once, before any transform.
	Key string
	// Object is the state after the change; for a deletion, the last state.
	Object T
	// Version is the source's version of the change, 0 if it has none.
	Version uint64
}

// Deltas are changes in the order in which they arrived.
type Deltas[T any] []Delta[T]

// Newest returns the last change. There must be one.
func (d Deltas[T]) Newest() Delta[T] { return d[len(d)-1] }
