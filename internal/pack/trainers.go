// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

import "sync"

// Trainers are the trainers of the kinds that one packer has seen. All methods are safe for
// concurrent use.
type Trainers struct {
	dictionaries *dictionaries

	// mu guards the fields below: the kinds that the packer has seen. Most packers see
	// one, which is first. A kind costs 100 bytes, and as much in dictionaries.
	mu    sync.RWMutex
	first *Trainer
	more  map[Key]*Trainer
}

// NewTrainers returns an empty Trainers. Dictionaries and samples, and those of all forks,
// take at most a number of bytes together. 0 means 256 MiB.
func NewTrainers(bytes int64) *Trainers { return &Trainers{dictionaries: newDictionaries(bytes)} }

// Fork returns an empty Trainers, which shares the dictionaries of p.
func (p *Trainers) Fork() *Trainers { return &Trainers{dictionaries: p.dictionaries} }

// Of returns the trainer of a kind, nil if there is no room for it.
func (p *Trainers) Of(at Key) *Trainer {
	p.mu.RLock()
	t := p.knownLocked(at)
	p.mu.RUnlock()
	if t != nil {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t = p.knownLocked(at); t != nil {
		return t
	}
	t = p.dictionaries.trainer(at)
	switch {
	case t == nil:
	case p.first == nil:
		p.first = t
	case p.more == nil:
		p.more = map[Key]*Trainer{at: t}
	default:
		p.more[at] = t
	}
	return t
}

func (p *Trainers) knownLocked(at Key) *Trainer {
	if t := p.first; t != nil && t.key == at {
		return t
	}
	return p.more[at]
}

// Bytes returns the bytes that dictionaries and samples take, of this and all forks.
// Dictionaries that only older objects still use are counted until they are freed.
func (p *Trainers) Bytes() int64 { return p.dictionaries.room.taken.Load() }
