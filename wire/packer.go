// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package wire

import (
	"bytes"
	"math/rand/v2"
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
)

// Packer packs objects. It makes a dictionary for each kind and encoding from the objects
// that it has seen. A dictionary that no longer fits is replaced, and freed once no
// object is packed with it.
//
// A packer can be shared, so that a kind has one dictionary for all sources of its
// objects. All methods are safe for concurrent use, but not on the same object. A packer
// costs about 300 KB for each kind of which it has seen more than 64 KiB.
type Packer struct {
	mu    sync.RWMutex
	kinds map[kindKey]*kindPacker
}

type kindKey struct {
	schema.GroupVersionKind
	encoding Encoding
}

// kindPacker is the part of a packer for one kind and encoding: its dictionary, and the
// samples and statistics for the next one.
type kindPacker struct {
	dict atomic.Pointer[dictionary]

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

// NewPacker returns a packer without dictionaries.
func NewPacker() *Packer { return &Packer{kinds: map[kindKey]*kindPacker{}} }

// kindPacker returns the part for the kind of an object.
func (p *Packer) kindPacker(o *Object) *kindPacker {
	at := kindKey{o.kind.GroupVersionKind, o.encoding}
	p.mu.RLock()
	s := p.kinds[at]
	p.mu.RUnlock()
	if s != nil {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.kinds[at]; s == nil {
		s = &kindPacker{next: trainFirst}
		p.kinds[at] = s
	}
	return s
}

// Pack packs an object that was not packed before, which takes about 10 us for 5 KB. The
// object stays as it is if there is no dictionary for it yet or if it would not get
// smaller. Last is the previous state of the object and may be nil.
func (p *Packer) Pack(o, last *Object) {
	b := o.body.Load()
	if b.dict != nil || len(b.data) < worthPacking {
		return
	}
	s := p.kindPacker(o)
	s.sample(b.data)
	d := s.dict.Load()
	if d == nil {
		return
	}
	data := d.pack(b.data)
	s.judge(len(b.data), len(data))
	if data != nil {
		o.repack(b.data, data, d, last)
	}
}

// Settle packs an object densely and with the newest dictionary, which takes about 75 us
// for 5 KB.
func (p *Packer) Settle(o *Object) {
	b := o.body.Load()
	d := p.kindPacker(o).dict.Load()
	if d == nil || b.dict == d && dense(b.data) {
		return
	}
	raw, scratch := o.open()
	defer scratch.free()
	if len(raw) < worthPacking {
		return
	}
	data := d.press(raw)
	if data == nil || len(data) > len(b.data) && b.dict == d {
		data = d.pack(raw)
	}
	switch {
	case data != nil:
		o.repack(raw, data, d, nil)
	case b.dict != nil:
		// The old dictionary should be freed, and the new one does not help here.
		o.body.Store(&body{data: append([]byte(nil), raw...)})
	}
}

// repack replaces the body. Before the first packed body it stores the labels.
func (o *Object) repack(raw, data []byte, d *dictionary, last *Object) {
	if o.body.Load().dict == nil && o.labels == unlabelled {
		known := unlabelled
		if last != nil && last.Packed() {
			known = last.labels
		}
		o.labels = keepLabels(raw, o.encoding, known)
	}
	o.body.Store(&body{data: data, dict: d})
}

// sample counts an object, may keep it as a sample, and makes a dictionary when one is
// due.
func (s *kindPacker) sample(raw []byte) {
	if !s.mu.TryLock() {
		return
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
		s.samples = append(s.samples, raw)
	case rand.IntN(sampleEvery) == 0:
		s.samples[rand.IntN(samples)] = raw
	}
	switch {
	case s.stale && len(s.samples) == samples:
		// Even if the next dictionary does not fit better, objects look like this now.
		s.stale, s.fit = false, 0
		s.trainLocked()
	case !s.stale && s.seen >= s.next && len(s.samples) >= fewestSamples:
		s.next = s.seen * trainAgain
		s.trainLocked()
	}
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
		s.stale, s.samples = true, nil
	}
}

// trainLocked makes a dictionary from the samples and keeps it if it is better.
func (s *kindPacker) trainLocked() {
	next := newDictionary(s.samples)
	if next == nil {
		return
	}
	if now := s.dict.Load(); now != nil && next.cost(s.samples) > better*now.cost(s.samples) {
		return
	}
	s.count, s.in, s.out = 0, 0, 0
	s.dict.Store(next)
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
func (p *Packer) Newest(o *Object) any { return p.kindPacker(o).dict.Load() }

// Dictionaries returns the number of kinds that have a dictionary, and the bytes that
// dictionaries and samples take. Dictionaries that only older objects still use are not
// counted.
func (p *Packer) Dictionaries() (n, bytes int) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, s := range p.kinds {
		if d := s.dict.Load(); d != nil {
			n++
			bytes += d.size()
		}
		s.mu.Lock()
		for _, raw := range s.samples {
			bytes += cap(raw)
		}
		s.mu.Unlock()
	}
	return n, bytes
}
