// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"container/list"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/wire"
)

const (
	// blockObjects is about how many objects are in a block, blockMost how many at
	// most, and blockBytes how many bytes they take when no more are added.
	blockObjects, blockMost, blockBytes = 16, 48, 128 << 10
	// loose is the size above which a block is not kept that does not get smaller:
	// making it again costs little more than keeping it would.
	loose = 512 << 10
	// pieceBytes is how much of a block is unpacked at a time to be sent: what a
	// client that reads slowly keeps of it in memory.
	pieceBytes = 64 << 10
)

// shelf is whose objects are in a block.
type shelf struct {
	cluster  string
	resource schema.GroupVersionResource
}

// blockKey is where a block begins and ends. A page of a list may begin or end within
// a run: that is another block.
type blockKey struct {
	shelf
	first, last string
}

// block is a run of neighbouring objects and, for the forms that were asked for,
// their bytes. Where runs begin depends on the keys alone, so that a change of one
// object makes one run another.
type block struct {
	key blockKey
	// objects identify the run. They are weak: a block that nobody asks for again must
	// not keep objects alive that the store has dropped.
	objects []weak.Pointer[wire.Object]
	// before is the block whose place this one took, for what is the same in both;
	// nil once it is not needed any more.
	before *block

	// mu guards what follows, and is held while bytes are made: who wants the same
	// waits.
	mu    sync.Mutex
	texts map[blockForm]*text
	// place, size and carried are the cache's, under its lock. carried is the part of
	// size that is the block before.
	place         *list.Element
	size, carried int
}

// blockForm is how the objects of a block are written, one behind the other: as
// items of a list, with commas between them if that is JSON, or as events that add
// them.
type blockForm struct {
	form
	events bool
}

// text is the bytes of a block in one form.
type text struct {
	// packed are the bytes, compressed with S2 unless they do not get smaller: pieces
	// of pieceBytes, each on its own. pieces is where each ends.
	packed []byte
	pieces []uint32
	plain  bool
	length int
	// ends is where each object's end, without a comma behind it.
	ends []uint32
	// bad are the objects that cannot be encoded, and have no bytes.
	bad []badObject
	// gzip is the part of a gzip stream that they are; nil until somebody asks.
	gzip *segment
}

// badObject is an object of a block, by its place, and why it cannot be encoded.
type badObject struct {
	at  int
	err error
}

// check returns an error if any of some objects, or of all if some is nil, cannot be
// encoded.
func (t *text) check(some []int) error {
	for _, bad := range t.bad {
		if some == nil || slices.Contains(some, bad.at) {
			return bad.err
		}
	}
	return nil
}

// isLast reports whether a run ends with a key.
func isLast(key string) bool {
	h := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h%blockObjects == 0
}

// runs cuts objects in key order into runs. What it yields is lent.
func runs(objects iter.Seq2[string, *wire.Object]) iter.Seq[[]*wire.Object] {
	return func(yield func([]*wire.Object) bool) {
		run := make([]*wire.Object, 0, blockMost)
		bytes := 0
		for key, o := range objects {
			if len(run) > 0 && (len(run) == blockMost || bytes >= blockBytes || namespaceOf(key) != run[0].Namespace()) {
				if !yield(run) {
					return
				}
				run, bytes = run[:0], 0
			}
			run = append(run, o)
			if bytes += o.Size(); isLast(key) {
				if !yield(run) {
					return
				}
				run, bytes = run[:0], 0
			}
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

func namespaceOf(key string) string { return key[:max(strings.IndexByte(key, '/'), 0)] }

// blocks keeps the bytes of blocks, the ones used last, within a bound. All methods
// are safe for concurrent use.
type blocks struct {
	max    int64
	logger *slog.Logger

	// mu guards what follows.
	mu    sync.Mutex
	byKey map[blockKey]*block
	// order has the block used last in front.
	order *list.List
	bytes int64
}

func newBlocks(max int64, logger *slog.Logger) *blocks {
	return &blocks{max: max, logger: logger, byKey: map[blockKey]*block{}, order: list.New()}
}

// get is the block of a run. The run is not kept.
func (c *blocks) get(s shelf, run []*wire.Object) *block {
	key := blockKey{s, run[0].Key(), run[len(run)-1].Key()}
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.byKey[key]
	if b != nil && b.holds(run) {
		if b.place != nil {
			c.order.MoveToFront(b.place)
		}
		return b
	}
	next := &block{key: key, objects: make([]weak.Pointer[wire.Object], len(run)), before: b, texts: map[blockForm]*text{}}
	for i, o := range run {
		next.objects[i] = weak.Make(o)
	}
	next.size = blockOverhead + weakSize*len(run)
	if b != nil {
		c.dropLocked(b)
		next.carried = b.size - b.carried // it has let go of its own
		next.size += next.carried
	}
	next.place = c.order.PushFront(next)
	c.byKey[key] = next
	c.addLocked(int64(next.size))
	return next
}

// blockOverhead is about the size of a block without its objects and texts, weakSize that
// of a weak pointer and its handle.
const blockOverhead, weakSize = 400, 56

// holds reports whether the block is of exactly these objects.
func (b *block) holds(run []*wire.Object) bool {
	if len(b.objects) != len(run) {
		return false
	}
	for i, o := range run {
		if b.objects[i].Value() != o {
			return false
		}
	}
	return true
}

func (c *blocks) dropLocked(b *block) {
	c.order.Remove(b.place)
	b.place = nil
	c.bytes -= int64(b.size)
	delete(c.byKey, b.key)
}

func (c *blocks) addLocked(n int64) {
	c.bytes += n
	for c.bytes > c.max && c.order.Len() > 1 {
		c.dropLocked(c.order.Back().Value.(*block))
	}
}

// uncarry returns the size of the block before, which the block does not hold any more.
func (c *blocks) uncarry(b *block) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := b.carried
	b.carried = 0
	return n
}

// grew takes note that a block has become larger.
func (c *blocks) grew(b *block, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.place == nil {
		return // it has been dropped meanwhile
	}
	b.size += n
	c.addLocked(int64(n))
}

// part returns the bytes of a run of objects in a form, as a part of a response. If some
// is not nil the part has only those of the run, by their places. It fails if one of the
// objects cannot be encoded. The run is not kept.
func (c *blocks) part(s shelf, run []*wire.Object, f blockForm, some []int) (part, error) {
	b := c.get(s, run)
	t := c.text(b, run, f)
	return part{block: b, text: t, form: f, some: some}, t.check(some)
}

// text returns the bytes of a block, whose objects the caller has, in a form.
func (c *blocks) text(b *block, run []*wire.Object, f blockForm) *text {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.texts[f]
	if t != nil {
		return t
	}
	had := b.before != nil
	t = b.makeLocked(run, f)
	for _, bad := range t.bad {
		c.logger.Error("cannot encode object", "cluster", b.key.cluster, "resource", b.key.resource.GroupResource().String(), "err", bad.err)
	}
	if had && b.before == nil {
		c.grew(b, -c.uncarry(b))
	}
	if t.plain && t.length > loose {
		return t // not kept
	}
	b.texts[f] = t
	c.grew(b, len(t.packed)+4*len(t.ends)+4*len(t.pieces))
	return t
}

// segment returns the gzip stream of a text, and keeps it if the text is kept.
func (c *blocks) segment(b *block, f blockForm, t *text) *segment {
	if t.gzip != nil {
		return t.gzip
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.texts[f]
	if kept != nil && kept.gzip != nil {
		return kept.gzip
	}
	raw, release := t.open()
	s := deflate(raw)
	release()
	if kept != nil {
		with := *kept // other readers have the text
		with.gzip = &s
		b.texts[f] = &with
		c.grew(b, len(s.deflated))
	}
	return &s
}

// makeLocked writes the objects. What the block before has the bytes of is taken from
// there.
func (b *block) makeLocked(run []*wire.Object, f blockForm) *text {
	known, release := b.beforeLocked(f)
	defer release()
	buf := buffers.Get().(*[]byte)
	defer keepBuffer(buf)
	raw := (*buf)[:0]
	t := &text{ends: make([]uint32, len(run))}
	for i, o := range run {
		at := len(raw)
		if at > 0 && f.separated() {
			raw = append(raw, ',')
		}
		var err error
		if was, ok := known[o]; ok {
			raw = append(raw, was...)
		} else if raw, err = f.write(raw, o); err != nil {
			// Readers that do not want this one get the others.
			raw, t.bad = raw[:at], append(t.bad, badObject{i, err})
		}
		t.ends[i] = uint32(len(raw))
	}
	*buf = raw
	t.pack(raw)
	return t
}

// pack keeps the bytes, which stay the caller's.
func (t *text) pack(raw []byte) {
	t.length = len(raw)
	buf := buffers.Get().(*[]byte)
	defer keepBuffer(buf)
	packed := (*buf)[:0]
	for piece := range slices.Chunk(raw, pieceBytes) {
		packed = slices.Grow(packed, s2.MaxEncodedLen(len(piece)))
		packed = packed[:len(packed)+len(s2.Encode(packed[len(packed):cap(packed)], piece))]
		t.pieces = append(t.pieces, uint32(len(packed)))
	}
	if *buf = packed; len(packed) > len(raw)*3/4 {
		packed, t.pieces, t.plain = raw, nil, true
	}
	t.packed = slices.Clone(packed)
}

// separated reports whether there are commas between the objects.
func (f blockForm) separated() bool { return f.encoding == asJSON && !f.events }

// write appends an object. After an error the bytes before it are the same.
func (f blockForm) write(b []byte, o *wire.Object) ([]byte, error) {
	out, err := encode(o, func() ([]byte, error) {
		if f.events {
			return f.event(b, wire.Added, o)
		}
		return f.item(b, o)
	})
	if err != nil {
		return b, err
	}
	return out, nil
}

// beforeLocked is what of the block before can be used again.
func (b *block) beforeLocked(f blockForm) (known map[*wire.Object][]byte, release func()) {
	before := b.before
	if before == nil {
		return nil, func() {}
	}
	before.mu.Lock()
	t := before.texts[f]
	delete(before.texts, f)
	if before.before = nil; len(before.texts) == 0 {
		b.before = nil
	}
	before.mu.Unlock()
	if t == nil {
		return nil, func() {}
	}
	raw, release := t.open()
	known = make(map[*wire.Object][]byte, len(t.ends))
	for i, p := range before.objects {
		if o := p.Value(); o != nil {
			if item := t.at(raw, i, f); len(item) > 0 {
				known[o] = item
			}
		}
	}
	return known, release
}

// span is where the bytes of one object are.
func (t *text) span(i int, f blockForm) (from, to uint32) {
	to = t.ends[i]
	if i > 0 {
		from = t.ends[i-1]
	}
	if from > 0 && from < to && f.separated() {
		from++
	}
	return from, to
}

// at is what of the bytes is one object's.
func (t *text) at(raw []byte, i int, f blockForm) []byte {
	from, to := t.span(i, f)
	return raw[from:to]
}

// pick writes the bytes of some objects, as the form has them one after the other.
func (t *text) pick(f blockForm, objects []int, write func([]byte) error) error {
	raw, release := t.open()
	defer release()
	first := true
	for _, i := range objects {
		item := t.at(raw, i, f)
		if len(item) == 0 {
			continue
		}
		if !first && f.separated() {
			if err := write(comma); err != nil {
				return err
			}
		}
		first = false
		if err := write(item); err != nil {
			return err
		}
	}
	return nil
}

// open is the bytes, until they are released.
func (t *text) open() (raw []byte, release func()) {
	if t.plain {
		return t.packed, func() {}
	}
	buf := buffers.Get().(*[]byte)
	raw = slices.Grow((*buf)[:0], t.length)[:t.length]
	for i := range t.pieces {
		t.unpack(i, raw[i*pieceBytes:])
	}
	*buf = raw
	return raw, func() { keepBuffer(buf) }
}

// writeTo writes the bytes, of which one piece is unpacked at a time.
func (t *text) writeTo(w io.Writer) error {
	if t.plain {
		_, err := w.Write(t.packed)
		return err
	}
	buf := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(buf)
	for i := range t.pieces {
		if _, err := w.Write(t.unpack(i, buf[:])); err != nil {
			return err
		}
	}
	return nil
}

// unpack puts a piece into a buffer that has room for it, and returns it.
func (t *text) unpack(i int, into []byte) []byte {
	from := uint32(0)
	if i > 0 {
		from = t.pieces[i-1]
	}
	raw, err := s2.Decode(into, t.packed[from:t.pieces[i]])
	if err != nil {
		panic("replica: block is damaged: " + err.Error()) // s2 wrote it
	}
	return raw
}

// pieces are for the bytes of a block while they are sent.
var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// buffers are for the bytes of a block while they are written.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// keepBuffer gives a buffer back, unless it is too large to keep.
func keepBuffer(buf *[]byte) {
	if cap(*buf) <= 4<<20 {
		*buf = (*buf)[:0]
		buffers.Put(buf)
	}
}
