// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package scan

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/watershed-project/watershed/internal/protobuf"
)

// ManagedEntry is an entry of metadata.managedFields. time is in seconds.
type ManagedEntry struct {
	manager, operation, subresource string
	time                            int64
	raw                             []byte
}

// place returns the parts of an entry that distinguish it from the others of an object.
func (e *ManagedEntry) place() [3]string {
	return [3]string{e.manager, e.operation, e.subresource}
}

// Managers returns the names of the field managers that led from an older state of an
// object, with the entries before, to one with the entries now, in order.
//
// An API server records when a manager last wrote, in seconds. So several names are
// returned if it cannot be known which of them wrote, and none if the object has no managed
// fields.
func Managers(now, before []ManagedEntry) []string {
	// An entry with another time is that of the manager that wrote. The entry of another
	// manager changes too if it loses a field, but keeps its time.
	candidates := slices.DeleteFunc(slices.Clone(now), func(e ManagedEntry) bool {
		return slices.ContainsFunc(before, func(b ManagedEntry) bool {
			return b.place() == e.place() && b.time == e.time
		})
	})
	if len(candidates) == 0 {
		candidates = slices.DeleteFunc(slices.Clone(now), func(e ManagedEntry) bool {
			return slices.ContainsFunc(before, func(b ManagedEntry) bool { return bytes.Equal(b.raw, e.raw) })
		})
	}
	if len(candidates) == 0 {
		candidates = now
	}
	latest := int64(0)
	for _, e := range candidates {
		latest = max(latest, e.time)
	}
	var names []string
	for _, e := range candidates {
		if e.time == latest && e.manager != "" {
			names = append(names, e.manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// clockSkew is how much the clocks of two API servers may differ, in seconds.
const clockSkew = 5

// LastManager returns the field manager that wrote last, by the times in
// metadata.managedFields. It is "" if another wrote a few seconds before, because API
// servers may have different clocks, and if there are no managed fields.
func LastManager(raw []byte, isJSON bool) string {
	last, latest, other := "", int64(math.MinInt64), int64(math.MinInt64)
	see := func(e ManagedEntry) {
		switch {
		case e.manager == last:
			latest = max(latest, e.time)
		case e.time > latest:
			last, latest, other = e.manager, e.time, latest
		default:
			other = max(other, e.time)
		}
	}
	if isJSON {
		for _, e := range managedJSON(raw) {
			see(e)
		}
	} else {
		metaField(raw, 17, func(entry []byte) { see(managedEntryOf(entry)) })
	}
	if other > math.MinInt64 && latest-other <= clockSkew {
		return ""
	}
	return last
}

// Managed returns the entries of metadata.managedFields, as far as they can be read.
func Managed(raw []byte, isJSON bool) []ManagedEntry {
	if isJSON {
		return managedJSON(raw)
	}
	return managedProtobuf(raw)
}

// managedJSON returns the entries of metadata.managedFields in JSON, as far as they can be
// read.
func managedJSON(raw []byte) []ManagedEntry {
	var all []ManagedEntry
	valueOf(raw, "metadata", func(meta []byte) {
		valueOf(meta, "managedFields", func(entries []byte) {
			var list []json.RawMessage
			if json.Unmarshal(entries, &list) != nil {
				return
			}
			for _, raw := range list {
				var e struct {
					Manager, Operation, Subresource string
					Time                            time.Time
				}
				if json.Unmarshal(raw, &e) == nil {
					all = append(all, ManagedEntry{
						e.Manager, e.Operation, e.Subresource, unixSeconds(e.Time), bytes.Clone(raw),
					})
				}
			}
		})
	})
	return all
}

// unixSeconds returns the seconds of a time, 0 for no time.
func unixSeconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// managedProtobuf is managedJSON for a protobuf message.
func managedProtobuf(raw []byte) []ManagedEntry {
	var all []ManagedEntry
	metaField(raw, 17, func(entry []byte) { all = append(all, managedEntryOf(bytes.Clone(entry))) })
	return all
}

// managedEntryOf returns the entry in a protobuf message, which it keeps.
func managedEntryOf(raw []byte) ManagedEntry {
	e := ManagedEntry{raw: raw}
	for p := (protobuf.Scanner{Data: raw}); p.Next(); {
		switch p.Field {
		case 1:
			e.manager = string(p.Bytes())
		case 2:
			e.operation = string(p.Bytes())
		case 4:
			e.time = seconds(p.Bytes())
		case 8:
			e.subresource = string(p.Bytes())
		}
	}
	return e
}
