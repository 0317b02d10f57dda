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
	// trainFirst is after how many bytes of a kind its first dictionary is made.
	trainFirst = 64 << 10
	// trainAgain is the factor by which the bytes seen must grow before another
	// dictionary is made. A list arrives in the order of names, so its first objects
	// do not represent the others.
	trainAgain = 8
	// samples is how many objects of a kind a dictionary is made of.
	samples = 48
	// fewestSamples is how many objects a dictionary needs at least.
	fewestSamples = 8
	// sampleEvery: once there are enough samples, one object in so many replaces one.
	sampleEvery = 64
	// sampleFast is the same number while a dictionary that no longer fits is being
	// replaced.
	sampleFast = 8
	// judged is by how many objects the fit of a dictionary is judged.
	judged = 512
	// unfit: a dictionary no longer fits if those objects take so many times what the
	// same number took at best.
	unfit = 1.3
	// better: another dictionary replaces the current one if the samples take at most
	// this part of what they take with it.
	better = 0.97
)

// Packer packs objects, with a dictionary for each kind and encoding made of those
// it has seen. A dictionary that does not fit any more is replaced by another, and
// is freed when nothing is packed with it any more.
//
// A packer can be shared: a kind has then one dictionary, wherever its objects come
// from. All methods are safe for concurrent use, but not on the same object. It
// costs about 300 KB for each kind of which there is more than 64 KiB.
type Packer struct {
	mu    sync.RWMutex
	kinds map[kindKey]*kindPacker
}

type kindKey struct {
	schema.GroupVersionKind
	encoding Encoding
}

// kindPacker is the part of a packer for one kind and encoding: its dictionary, and the samples
// and statistics for the next one.
type kindPacker struct {
	dict atomic.Pointer[dictionary]

	// mu guards what follows. Who finds it taken does without: it is statistics.
	mu      sync.Mutex
	samples [][]byte
	// stale says that the samples are being replaced.
	stale bool
	// seen counts bytes, next is when to make a dictionary.
	seen, next uint64
	// count, in and out are of objects packed since the dictionary was last judged,
	// fit is the best out/in there was, 0 if not known yet.
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

// Pack packs an object that was not packed before, some 10 us for 5 KB. It stays
// as it is if there is no dictionary for it yet or if it would not get smaller. Last
// is the state before, and may be nil.
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

// Settle packs an object densely and with the newest dictionary, some 75 us for
// 5 KB.
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
		// The old dictionary is to go, and the new one is of no use here.
		o.body.Store(&body{data: append([]byte(nil), raw...)})
	}
}

// repack replaces the body.
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

// sample takes note of an object, and makes a dictionary when it is time for one.
func (s *kindPacker) sample(raw []byte) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	s.seen += uint64(len(raw))
	if len(raw) > maxSample {
		// The rest would be kept with it, and the encoder that makes dictionaries
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
		// Whether the next one fits better or not, this is how objects are now.
		s.stale, s.fit = false, 0
		s.trainLocked()
	case !s.stale && s.seen >= s.next && len(s.samples) >= fewestSamples:
		s.next = s.seen * trainAgain
		s.trainLocked()
	}
}

// judge takes note of how well an object could be packed.
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

// trainLocked makes a dictionary of the samples and keeps it if it is better.
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

// cost is what samples take, packed fast.
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

// Newest changes when a kind has got another dictionary: what was settled before
// can be settled again.
func (p *Packer) Newest(o *Object) any { return p.kindPacker(o).dict.Load() }

// Dictionaries is how many kinds have one, and what they take. What only old
// objects still need is not counted.
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
