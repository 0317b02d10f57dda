// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package pack

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

// Key is what objects that share a dictionary have in common. Encoding may be any number
// that distinguishes encodings.
type Key struct {
	schema.GroupVersionKind
	Encoding uint8
}

// room is memory that is taken and returned.
type room struct {
	limit int64
	taken atomic.Int64
}

// take takes memory, and reports whether there was enough. To return memory, which always
// succeeds, bytes is less than 0.
func (r *room) take(bytes int64) bool {
	if r.taken.Add(bytes) > r.limit && bytes > 0 {
		r.taken.Add(-bytes)
		return false
	}
	return true
}

// Trainer is the part of packers for one kind and encoding: its dictionary, and the
// samples and statistics for the next one. All methods are safe for concurrent use.
type Trainer struct {
	key  Key
	dict atomic.Pointer[Dictionary]
	// room is where the memory of dictionaries and samples is taken from.
	room *room
	// kept is the memory of the samples. It is returned when the Trainer is freed.
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

// Dictionary returns the newest dictionary, nil if there is none yet.
func (t *Trainer) Dictionary() *Dictionary { return t.dict.Load() }

// Pack returns raw packed, nil if there is no dictionary yet or if it would not get
// smaller. Last is the previous state of the object and may be nil. If it is packed and
// the two differ little, raw is packed as a difference from it.
func (t *Trainer) Pack(raw []byte, last *Body) *Body {
	d := t.dict.Load()
	if d == nil {
		return nil
	}
	if how := last.from(d, false); how != nil {
		if data := how.differ(raw, len(how.base)/smallDifference); data != nil {
			return &Body{Data: data, How: how}
		}
	}
	data := d.Pack(raw)
	t.judge(len(raw), len(data))
	if data == nil {
		return nil
	}
	return &Body{Data: data, How: &d.alone}
}

// Settle returns raw packed densely, or fast if that takes less space than now, which is
// the object's present body; nil if it would not get smaller. Near is a body that may be
// similar and that was settled before, or nil. If the two are similar, raw is packed as a
// difference from it.
func (d *Dictionary) Settle(raw []byte, near, now *Body) *Body {
	if how := near.from(d, true); how != nil {
		if data := how.differ(raw, len(how.base)*similarParts/similarOf); data != nil {
			return &Body{Data: data, How: how}
		}
	}
	data := d.packDense(raw)
	if data == nil || now.How == &d.alone && len(data) > len(now.Data) {
		data = d.Pack(raw)
	}
	if data == nil {
		return nil
	}
	return &Body{Data: data, How: &d.alone}
}

// Sample counts an object, may keep it as a sample, and makes a dictionary when one is
// due. It reports whether it has kept raw.
func (t *Trainer) Sample(raw []byte) (kept bool) {
	if !t.mu.TryLock() {
		return false
	}
	defer t.mu.Unlock()
	t.seen += uint64(len(raw))
	if len(raw) > maxSample {
		// A subslice would keep the rest alive, and the encoder that makes dictionaries
		// cannot take more than its window.
		raw = bytes.Clone(raw[:maxSample])
	}
	switch {
	case t.stale && rand.IntN(sampleFast) != 0:
	case len(t.samples) < samples:
		if t.keep(cap(raw)) {
			t.samples, kept = append(t.samples, raw), true
		}
	case rand.IntN(sampleEvery) == 0:
		if i := rand.IntN(samples); t.keep(cap(raw) - cap(t.samples[i])) {
			t.samples[i], kept = raw, true
		}
	}
	switch {
	case t.stale && len(t.samples) == samples:
		// Even if the next dictionary does not fit better, objects look like this now.
		if t.trainLocked() {
			t.stale, t.fit = false, 0
		}
	case !t.stale && t.seen >= t.next && len(t.samples) >= fewestSamples:
		if t.trainLocked() {
			t.next = t.seen * trainAgain
		}
	}
	return kept
}

// keep adds to the memory of the samples, and reports whether there is room for it.
func (t *Trainer) keep(bytes int) bool {
	if !t.room.take(int64(bytes)) {
		return false
	}
	t.kept.Add(int64(bytes))
	return true
}

// judge records how well an object could be packed.
func (t *Trainer) judge(in, out int) {
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	if out == 0 {
		out = in
	}
	t.in, t.out = t.in+uint64(in), t.out+uint64(out)
	if t.count++; t.count < judged {
		return
	}
	now := float64(t.out) / float64(t.in)
	t.count, t.in, t.out = 0, 0, 0
	switch {
	case t.fit == 0 || now < t.fit:
		t.fit = now
	case now > t.fit*unfit && !t.stale:
		t.stale = true
		for _, raw := range t.samples {
			t.keep(-cap(raw))
		}
		t.samples = nil
	}
}

// Train makes a dictionary from the samples without waiting for more, and reports whether
// there is one. It is for tests.
func (t *Trainer) Train() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trainLocked()
	return t.dict.Load() != nil
}

// trainLocked makes a dictionary from the samples and keeps it if it is better. It returns
// false if there is no room for another dictionary, which is no reason to wait long before
// the next try: memory is returned when the garbage collector has run.
func (t *Trainer) trainLocked() bool {
	if !t.room.take(mostDictionary) {
		return false
	}
	next := newDictionary(t.samples)
	if next == nil {
		t.room.take(-mostDictionary)
		return true
	}
	size := int64(next.size())
	t.room.take(size - mostDictionary)
	runtime.AddCleanup(next, func(r *room) { r.take(-size) }, t.room)
	if now := t.dict.Load(); now != nil && next.cost(t.samples) > better*now.cost(t.samples) {
		return true
	}
	t.count, t.in, t.out = 0, 0, 0
	t.dict.Store(next)
	return true
}

// cost returns the size of samples after fast packing.
func (d *Dictionary) cost(samples [][]byte) float64 {
	sum := 0
	for _, raw := range samples {
		n := len(raw)
		if data := d.Pack(raw); data != nil {
			n = len(data)
		}
		sum += n
	}
	return float64(sum)
}
