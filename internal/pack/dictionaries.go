// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

const (
	// defaultRoom is how many bytes dictionaries and samples may take by default.
	defaultRoom = 256 << 20
	// kindOverhead is the memory of a kind in bytes, without its dictionary and its samples.
	kindOverhead = 1 << 10
)

// dictionaries has the trainers for all kinds of the packers that share them. It does not
// keep them in memory: the packers that have seen a kind do. So a kind is forgotten with
// the last source of its objects. All methods are safe for concurrent use.
type dictionaries struct {
	room room
	// mu guards kinds. It is taken after the mu of a [Trainers]. The room limits the number of kinds.
	mu    sync.Mutex
	kinds map[Key]weak.Pointer[Trainer]
}

// newDictionaries returns a dictionaries that takes at most a number of bytes, 256 MiB if
// that is 0.
func newDictionaries(bytes int64) *dictionaries {
	if bytes <= 0 {
		bytes = defaultRoom
	}
	return &dictionaries{room: room{limit: bytes}, kinds: map[Key]weak.Pointer[Trainer]{}}
}

// trainer returns the trainer of a kind, and makes it if necessary. It returns nil if
// there is no room for it.
func (d *dictionaries) trainer(at Key) *Trainer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.kinds[at].Value(); t != nil {
		return t
	}
	if !d.room.take(kindOverhead) {
		return nil
	}
	t := &Trainer{key: at, next: trainFirst, room: &d.room, kept: new(atomic.Int64)}
	t.kept.Store(kindOverhead)
	entry := weak.Make(t)
	d.kinds[at] = entry
	runtime.AddCleanup(t, func(kept *atomic.Int64) {
		d.room.take(-kept.Load())
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.kinds[at] == entry {
			delete(d.kinds, at)
		}
	}, t.kept)
	return t
}
