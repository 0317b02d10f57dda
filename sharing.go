// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"sync"
	"sync/atomic"
	"weak"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/engine"
)

const (
	// blockSize is the number of changes in a block.
	blockSize = 64
	// blocks is how many blocks can be found at once. Handlers that are more than
	// blocks*blockSize changes apart decode separately.
	blocks = 256
)

// sharing lets the handlers of an informer share decoded changes. Each object's own
// weak pointer would do, but reading it costs more than calling a handler: sharing
// reads one weak pointer per block. A block lives while a handler is in it, and then
// until the next garbage collection.
//
// It costs 2 KB and 40 bytes per block in use.
type sharing[T any] struct {
	life  *engine.Life
	slots [blocks]atomic.Pointer[blockSlot[T]]
}

// currentSharing has the sharing of the handlers' current life.
type currentSharing[T any] struct {
	mu sync.Mutex // guards of
	of *sharing[T]
}

// in returns the sharing of a life, which is the handlers' next one.
func (c *currentSharing[T]) in(l *engine.Life) *sharing[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil || c.of.life != l {
		c.of = &sharing[T]{life: l}
	}
	return c.of
}

// blockSlot refers to a block.
type blockSlot[T any] struct {
	number uint64
	block  weak.Pointer[changeBlock[T]]
}

// changeBlock has decoded changes by their revision.
type changeBlock[T any] struct {
	number  uint64
	changes [blockSize]atomic.Pointer[decoded[T]]
}

// decoded has the decoded states of a change.
type decoded[T any] struct {
	old, now T
	ok       bool
}

// block returns the block of a revision. It returns last if that is the one.
func (s *sharing[T]) block(revision uint64, last *changeBlock[T]) *changeBlock[T] {
	number := revision / blockSize
	if last != nil && last.number == number {
		return last
	}
	at := &s.slots[number%blocks]
	for {
		was := at.Load()
		if was != nil && was.number == number {
			if b := was.block.Value(); b != nil {
				return b
			}
		}
		b := &changeBlock[T]{number: number}
		if was != nil && was.number > number {
			return b // the handler is too far behind to share
		}
		if at.CompareAndSwap(was, &blockSlot[T]{number: number, block: weak.Make(b)}) {
			return b
		}
	}
}

// decode returns the decoded change. The first caller decodes it.
func (b *changeBlock[T]) decode(d *decoder[T], c *change) *decoded[T] {
	at := &b.changes[c.Revision%blockSize]
	if v := at.Load(); v != nil {
		return v
	}
	v := d.decodeChange(c)
	if at.CompareAndSwap(nil, v) {
		return v
	}
	return at.Load()
}

// decodeChange decodes the states of a change for a handler. The new state is decoded from
// its own bytes: readers of the informer share it, and a part of an older value might have
// been modified by a program, against the rules. The old state, which only handlers still
// need, shares its equal parts with the new one, unless it is already decoded.
func (d *decoder[T]) decodeChange(c *change) *decoded[T] {
	v := new(decoded[T])
	if v.now, v.ok = d.decode(c.New); !v.ok || c.Type != delta.Updated {
		v.old = v.now
		return v
	}
	var held bool
	if v.old, held = d.codec.held(c.Old); !held {
		v.old, v.ok = d.decoded(c.Old)(d.codec.like(c.Old, c.New, v.now))
	}
	return v
}
