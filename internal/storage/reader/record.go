// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reader

import (
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/wire"
)

// Change is a stored change of one object.
type Change struct {
	// Type is Added, Updated or Deleted.
	Type delta.Type
	// Missed marks a deletion that a relist found. Object may not be the final state.
	Missed bool
	Key    string
	// Object is the state after the change, or the last state of a deleted object. Old is
	// the state before the change, nil if the object did not exist. It is set in
	// [State.Records] only.
	Object, Old *wire.Object
	// Version is the version of the change.
	Version uint64
	// Manager is the field manager that made the change, empty if it is not known.
	Manager string
}

// Record is a stored batch: the changes that led from one state of the server to another.
type Record struct {
	// Version is the version of the state after the changes.
	Version uint64
	// Time is when the batch arrived.
	Time time.Time
	// Listed means that a relist found the changes. Other changes may have happened
	// between the versions.
	Listed  bool
	Changes []Change
}

// recordOf returns a batch with its objects.
func recordOf(r *format.Restorer, c *commit) (Record, error) {
	rec := Record{Version: c.Version, Time: c.Time, Listed: c.Flags&format.ListedBatch != 0}
	for n := range c.items {
		i := &c.items[n]
		o, err := r.Object(i)
		if err != nil {
			return rec, err
		}
		change := Change{
			Type: i.Change(), Missed: i.Missed(), Key: i.Key, Object: o,
			Version: i.Version, Manager: string(i.Manager),
		}
		if c.olds != nil && c.olds[n] != nil {
			if change.Old, err = r.Object(c.olds[n]); err != nil {
				return rec, err
			}
		}
		rec.Changes = append(rec.Changes, change)
	}
	return rec, nil
}
