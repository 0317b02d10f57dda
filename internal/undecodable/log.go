// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package undecodable

import (
	"sync"
	"weak"

	"github.com/watershed-project/watershed/wire"
)

// minLimit is the number of states below which a log does not look for states that
// were freed.
const minLimit = 1024

// Log remembers which states were reported, so that each is reported once. The zero
// value is ready; it is safe for concurrent use.
type Log struct {
	// mu guards the fields below.
	mu     sync.Mutex
	states map[weak.Pointer[wire.Object]]struct{}
	// limit is the number of states at which those that were freed are dropped.
	limit int
}

// First adds a state and reports whether it was not in the log before.
func (l *Log) First(o *wire.Object) bool {
	state := weak.Make(o)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.states[state]; there {
		return false
	}
	if l.states == nil {
		l.states, l.limit = map[weak.Pointer[wire.Object]]struct{}{}, minLimit
	}
	if len(l.states) >= l.limit {
		for s := range l.states {
			if s.Value() == nil {
				delete(l.states, s)
			}
		}
		l.limit = max(minLimit, 2*len(l.states))
	}
	l.states[state] = struct{}{}
	return true
}
