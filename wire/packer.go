// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxSample is how many bytes of an object are used as a sample.
	maxSample = 64 << 10
	// worthPacking is the size in bytes below which objects are not packed.
	worthPacking = 256
	// trainFirst is the number of bytes of a kind after which its first dictionary is
	// made.
	trainFirst = 64 << 10
	// trainAgain is the factor by which the bytes seen must grow before another
	// dictionary is made. A list arrives ordered by name, so its first objects do not
	// represent the others.
	trainAgain = 8
	// samples is the number of objects of a kind that a dictionary is made from.
	samples = 48
	// fewestSamples is the minimum number of objects for a dictionary.
	fewestSamples = 8
	// sampleEvery is the sampling rate once there are enough samples: one object in so
	// many replaces a sample.
	sampleEvery = 64
	// sampleFast is the sampling rate while a dictionary that no longer fits is being
	// replaced.
	sampleFast = 8
	// judged is the number of objects by which the fit of a dictionary is judged.
	judged = 512
	// unfit is the limit for a dictionary's fit: it no longer fits if those objects pack
	// this many times worse than the best ratio so far.
	unfit = 1.3
	// better is the limit for another dictionary: it replaces the current one if the
	// samples take at most this fraction of their current size.
	better = 0.97
	// smallDifference is the limit for a difference from the state before: it is stored
	// if it takes at most one in so many parts of that state. The state before stays in
	// memory with it.
	smallDifference = 4
	// similarParts/similarOf is the limit for a difference from another object, as a part
	// of the space that the other takes.
	similarParts, similarOf = 7, 10
)

// Packer packs objects. It makes a dictionary for each kind and encoding from the objects
// that it has seen. A dictionary that no longer fits is replaced, and freed once no
// object is packed with it.
//
// Packers can share their dictionaries, see [Packer.Fork], so that a kind has one
// dictionary for all sources of its objects. All methods are safe for concurrent use, but
// not on the same object. A kind of which the packers have seen more than 64 KiB costs
// about 300 KB.
type Packer struct {
	shelf *shelf

	// mu guards the fields below: the kinds that the packer has seen. Most packers see
	// one, which is first. A kind costs 100 bytes, and as much on the shelf.
	mu    sync.RWMutex
	first *kindPacker
	more  map[kindKey]*kindPacker
}

type kindKey struct {
	schema.GroupVersionKind
	encoding Encoding
}

// kindPacker is the part of a packer for one kind and encoding: its dictionary, and the
// samples and statistics for the next one.
type kindPacker struct {
	key  kindKey
	dict atomic.Pointer[dictionary]
	// room is where the memory of dictionaries and samples is taken from.
	room *room
	// kept is the memory of the samples. It is returned when the kindPacker is freed.
	kept *atomic.Int64

	// mu guards the fields below. A caller that finds it locked skips its update: these
	// are only statistics.
	mu      sync.Mutex
	samples [][]byte
	// stale is set while the samples are being replaced.
	stale bool
	// seen is the number of bytes so far, next the number at which to make a dictionary.
	seen, next uint64
	// count, in and out cover the objects packed since the dictionary was last judged.
	// fit is the lowest out/in so far, 0 if not known yet.
	count   int
	in, out uint64
	fit     float64
}

// NewPacker returns a packer without dictionaries. Its dictionaries and samples, and those
// of the packers that share them, take at most a number of bytes together. When there is
// no room for those of another kind, the objects of that kind are not packed. 0 means
// 256 MiB, which is enough for some 600 kinds with objects of 5 KB.
func NewPacker(bytes int64) *Packer {
	if bytes <= 0 {
		bytes = defaultRoom
	}
	return &Packer{shelf: newShelf(bytes)}
}

// Fork returns a packer that shares the dictionaries of p. The dictionary of a kind is
// freed when none of the packers that have seen the kind is in use, and no object is packed
// with it.
func (p *Packer) Fork() *Packer { return &Packer{shelf: p.shelf} }

// kindPacker returns the part for the kind of an object, or nil if there is no room for
// it.
func (p *Packer) kindPacker(o *Object) *kindPacker {
	at := kindKey{o.kind.GroupVersionKind, o.encoding}
	p.mu.RLock()
	s := p.knownLocked(at)
	p.mu.RUnlock()
	if s != nil {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.knownLocked(at); s != nil {
		return s
	}
	s = p.shelf.kindPacker(at)
	switch {
	case s == nil:
	case p.first == nil:
		p.first = s
	case p.more == nil:
		p.more = map[kindKey]*kindPacker{at: s}
	default:
		p.more[at] = s
	}
	return s
}

func (p *Packer) knownLocked(at kindKey) *kindPacker {
	if s := p.first; s != nil && s.key == at {
		return s
	}
	return p.more[at]
}

// Pack packs an object that was not packed before, which takes about 10 us for 5 KB. The
// object stays as it is if there is no dictionary for it yet or if it would not get
// smaller. Last is the previous state of the object and may be nil. If it is packed and
// the two differ little, the object is stored as a difference, which takes 4 us.
func (p *Packer) Pack(o, last *Object) {
	b := o.body.Load()
	if b.how != nil || len(b.data) < worthPacking {
		return
	}
	s := p.kindPacker(o)
	if s == nil {
		return
	}
	if s.sample(b.data) {
		o.lease.end()
	}
	d := s.dict.Load()
	if d == nil {
		return
	}
	if last != nil {
		if how := last.body.Load().from(d, false); how != nil {
			if data := how.differ(b.data, len(how.base)/smallDifference); data != nil {
				o.repack(b.data, data, how, last)
				return
			}
		}
	}
	data := d.pack(b.data)
	s.judge(len(b.data), len(data))
	if data != nil {
		o.repack(b.data, data, &d.alone, last)
	}
}

// Settle packs an object densely and with the newest dictionary, which takes about 75 us
// for 5 KB. Near is an object that may be similar and that was settled before, such as
// the one with the previous key. It may be nil. If the two are similar, o is stored as a
// difference from near, which takes less than half the time and half the space.
func (p *Packer) Settle(o, near *Object) {
	b := o.body.Load()
	d := p.newest(o)
	if d == nil || b.how != nil && b.how.dict == d && b.how.settled(b.data) {
		return
	}
	raw, scratch := o.open()
	defer scratch.free()
	if len(raw) < worthPacking {
		return
	}
	if near != nil {
		if how := near.body.Load().from(d, true); how != nil {
			if data := how.differ(raw, len(how.base)*similarParts/similarOf); data != nil {
				o.repack(raw, data, how, nil)
				return
			}
		}
	}
	data := d.press(raw)
	if data == nil || b.how == &d.alone && len(data) > len(b.data) {
		data = d.pack(raw)
	}
	switch {
	case data != nil:
		o.repack(raw, data, &d.alone, nil)
	case b.how != nil:
		// The old dictionary should be freed, and the new one does not help here.
		o.body.Store(&body{data: append([]byte(nil), raw...)})
	}
}

// repack replaces the body. Before the first packed body it stores the labels.
func (o *Object) repack(raw, data []byte, how *packing, before *Object) {
	if !o.Packed() && o.labels == unlabelled {
		known := unlabelled
		if before != nil && before.Packed() {
			known = before.labels
		}
		o.labels = keepLabels(raw, o.encoding, known)
	}
	last := o.body.Swap(&body{data: data, how: how})
	if last.how == nil {
		o.lease.recycle(last.data)
	}
}

// sample counts an object, may keep it as a sample, and makes a dictionary when one is
// due. It reports whether it has kept raw.
func (s *kindPacker) sample(raw []byte) (kept bool) {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	s.seen += uint64(len(raw))
	if len(raw) > maxSample {
		// A subslice would keep the rest alive, and the encoder that makes dictionaries
		// cannot take more than its window.
		raw = bytes.Clone(raw[:maxSample])
	}
	switch {
	case s.stale && rand.IntN(sampleFast) != 0:
	case len(s.samples) < samples:
		if s.keep(cap(raw)) {
			s.samples, kept = append(s.samples, raw), true
		}
	case rand.IntN(sampleEvery) == 0:
		if i := rand.IntN(samples); s.keep(cap(raw) - cap(s.samples[i])) {
			s.samples[i], kept = raw, true
		}
	}
	switch {
	case s.stale && len(s.samples) == samples:
		// Even if the next dictionary does not fit better, objects look like this now.
		if s.trainLocked() {
			s.stale, s.fit = false, 0
		}
	case !s.stale && s.seen >= s.next && len(s.samples) >= fewestSamples:
		if s.trainLocked() {
			s.next = s.seen * trainAgain
		}
	}
	return kept
}

// keep adds to the memory of the samples, and reports whether there is room for it.
func (s *kindPacker) keep(bytes int) bool {
	if !s.room.take(int64(bytes)) {
		return false
	}
	s.kept.Add(int64(bytes))
	return true
}

// judge records how well an object could be packed.
func (s *kindPacker) judge(in, out int) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if out == 0 {
		out = in
	}
	s.in, s.out = s.in+uint64(in), s.out+uint64(out)
	if s.count++; s.count < judged {
		return
	}
	now := float64(s.out) / float64(s.in)
	s.count, s.in, s.out = 0, 0, 0
	switch {
	case s.fit == 0 || now < s.fit:
		s.fit = now
	case now > s.fit*unfit && !s.stale:
		s.stale = true
		for _, raw := range s.samples {
			s.keep(-cap(raw))
		}
		s.samples = nil
	}
}

// trainLocked makes a dictionary from the samples and keeps it if it is better. It returns
// false if there is no room for another dictionary, which is no reason to wait long before
// the next try: memory is returned when the garbage collector has run.
func (s *kindPacker) trainLocked() bool {
	if !s.room.take(mostDictionary) {
		return false
	}
	next := newDictionary(s.samples)
	if next == nil {
		s.room.take(-mostDictionary)
		return true
	}
	size := int64(next.size())
	s.room.take(size - mostDictionary)
	runtime.AddCleanup(next, func(r *room) { r.take(-size) }, s.room)
	if now := s.dict.Load(); now != nil && next.cost(s.samples) > better*now.cost(s.samples) {
		return true
	}
	s.count, s.in, s.out = 0, 0, 0
	s.dict.Store(next)
	return true
}

// cost returns the size of samples after fast packing.
func (d *dictionary) cost(samples [][]byte) float64 {
	sum := 0
	for _, raw := range samples {
		n := len(raw)
		if data := d.pack(raw); data != nil {
			n = len(data)
		}
		sum += n
	}
	return float64(sum)
}

// Newest returns a value that changes when the object's kind gets another dictionary.
// Objects that were settled before can then be settled again.
func (p *Packer) Newest(o *Object) any { return p.newest(o) }

// newest returns the newest dictionary of an object's kind, or nil.
func (p *Packer) newest(o *Object) *dictionary {
	if s := p.kindPacker(o); s != nil {
		return s.dict.Load()
	}
	return nil
}

// Dictionaries returns the number of kinds that have a dictionary, and the bytes that
// dictionaries and samples take, of all packers that share them. Dictionaries that only
// older objects still use are counted until they are freed.
func (p *Packer) Dictionaries() (n, bytes int) {
	return p.shelf.dictionaries(), int(p.shelf.room.taken.Load())
}

// DictionaryBytes returns the bytes that [Packer.Dictionaries] returns, without counting
// the kinds.
func (p *Packer) DictionaryBytes() int64 { return p.shelf.room.taken.Load() }
