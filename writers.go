// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"strings"
	"sync"

	"github.com/watershed-project/watershed/wire"
)

// writers remembers the field managers of new states from their arrival until they are
// stored, when they are cheap to read: later the states are packed, or a transformation has
// dropped their managed fields. It has an entry for each state that is queued.
type writers struct {
	mu sync.Mutex
	// stored is the version of the last stored state, 0 before the first one. States that
	// are not newer belong to a list, and have not changed.
	stored uint64
	// names are the field managers by version, and versions are its keys in the order of
	// their arrival.
	names    map[uint64]string
	versions []uint64
}

// noting returns a transformation that also remembers the field managers of its input.
func (w *writers) noting(transform transformation) transformation {
	return func(o *wire.Object) (*wire.Object, error) {
		switch {
		case transform != nil:
			w.note(o, func() string { return strings.Join(o.Managers(nil), ",") })
			return transform(o)
		case o.Encoding() == wire.Protobuf:
			w.note(o, o.LastManager)
		}
		// Objects in JSON keep their managed fields, which take long to read.
		return o, nil
	}
}

// note remembers the field managers of a state, if they are known.
func (w *writers) note(o *wire.Object, read func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	version := o.Version()
	if w.stored == 0 || version <= w.stored {
		return
	}
	if name := read(); name != "" {
		if w.names == nil {
			w.names = map[uint64]string{}
		}
		w.names[version] = name
		w.versions = append(w.versions, version)
	}
}

// take returns the field managers of changes that lead to a version, in their order, and
// forgets those of all states up to it. It returns nil if none is known.
func (w *writers) take(changes []change, version uint64) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	if len(w.names) > 0 {
		all = make([]string, len(changes))
		for i := range changes {
			if o := changes[i].New; o != nil {
				all[i] = w.names[o.Version()]
			}
		}
	}
	n := 0
	for n < len(w.versions) && w.versions[n] <= version {
		delete(w.names, w.versions[n])
		n++
	}
	if w.versions = w.versions[n:]; len(w.versions) == 0 {
		w.names, w.versions = nil, nil
	}
	w.stored = version
	return all
}
