// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

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

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

const (
	// blockObjects is about how many objects are in a block.
	blockObjects = 16
	// blockMost is how many objects are in a block at most.
	blockMost = 48
	// blockBytes is the size of the objects after which no more are added.
	blockBytes = 128 << 10
	// loose is the size above which a block is not kept if compression does not make it
	// smaller: making it again costs little more than keeping it.
	loose = 512 << 10
)

// Source is the cluster and the resource that the objects of a block are from.
type Source struct {
	// Cluster is the name of the member.
	Cluster string
	// Resource is the resource, in the version of the objects.
	Resource schema.GroupVersionResource
}

// blockKey is where a block begins and ends. A page of a list that begins or ends within a
// run makes another block.
type blockKey struct {
	Source
	first, last string
}

// block is a run of neighbouring objects and, for the forms that were requested, their
// bytes. Where runs begin depends on the keys alone, so that a change of one object
// invalidates one run.
type block struct {
	key blockKey
	// objects identify the run. They are weak, so that a block which is not read again does
	// not keep objects alive that the store has dropped.
	objects []weak.Pointer[wire.Object]
	// before is the block that this one replaced. Bytes of objects that are in both are
	// taken from it. It is nil once it is not needed any more.
	before *block

	// mu guards what follows. It is held while bytes are made, so that a second reader of
	// the same form waits for the first.
	mu sync.Mutex
	// texts has a nil text for a form in which the objects were requested once: compressing
	// the bytes costs more than making them, and most lists are read by one client.
	texts map[BlockForm]*text
	// place, size and carried belong to the cache, under its lock. carried is the part of
	// size that the block before takes.
	place         *list.Element
	size, carried int
}

// BlockForm is how the objects of a block are written, one behind the other: as items of a
// list, with commas between them in JSON, or as ADDED events.
type BlockForm struct {
	Form
	// Events makes them events.
	Events bool
}

// text is the bytes of a block in one form.
type text struct {
	// packed are the bytes, compressed with S2 unless that does not make them smaller, in
	// pieces of PieceBytes each. pieces is where each piece ends.
	packed []byte
	pieces []uint32
	plain  bool
	length int
	// ends is where the bytes of each object end, without a comma.
	ends []uint32
	// bad are the objects that cannot be encoded, and have no bytes.
	bad []badObject
	// gzip is the same as part of a gzip stream, nil until a client requests that.
	gzip *Segment
}

// badObject is the place of an object in a block, and why it cannot be encoded.
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

// Runs cuts objects in key order into runs. The slice is reused for the next run.
func Runs(objects iter.Seq2[string, *wire.Object]) iter.Seq[[]*wire.Object] {
	return func(yield func([]*wire.Object) bool) {
		run := make([]*wire.Object, 0, blockMost)
		bytes := 0
		for key, o := range objects {
			if len(run) > 0 && (len(run) == blockMost || bytes >= blockBytes ||
				namespaceOf(key) != run[0].Namespace()) {
				if !yield(run) {
					return
				}
				run, bytes = run[:0], 0
			}
			run = append(run, o)
			bytes += o.Size()
			if isLast(key) {
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

// Blocks keeps the bytes of the blocks that were used last, within a bound. All methods
// are safe for concurrent use.
type Blocks struct {
	logger *slog.Logger

	// mu guards what follows.
	mu    sync.Mutex
	max   int64
	byKey map[blockKey]*block
	// order has the block used last in front.
	order *list.List
	bytes int64
}

// NewBlocks returns an empty cache of at most max bytes.
func NewBlocks(max int64, logger *slog.Logger) *Blocks {
	return &Blocks{max: max, logger: logger, byKey: map[blockKey]*block{}, order: list.New()}
}

// Resize changes the bound, and drops the blocks that exceed it.
func (c *Blocks) Resize(max int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = max
	c.addLocked(0)
}

// get returns the block of a run. The run is not kept.
func (c *Blocks) get(s Source, run []*wire.Object) *block {
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
	next := &block{
		key: key, objects: make([]weak.Pointer[wire.Object], len(run)), before: b, texts: map[BlockForm]*text{},
	}
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

const (
	// blockOverhead is about the size of a block without its objects and texts.
	blockOverhead = 400
	// weakSize is the size of a weak pointer and its handle.
	weakSize = 56
)

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

func (c *Blocks) dropLocked(b *block) {
	c.order.Remove(b.place)
	b.place = nil
	c.bytes -= int64(b.size)
	delete(c.byKey, b.key)
}

func (c *Blocks) addLocked(n int64) {
	c.bytes += n
	for c.bytes > c.max && c.order.Len() > 1 {
		c.dropLocked(c.order.Back().Value.(*block))
	}
}

// uncarry returns the size of the block before, which the block does not hold any more.
func (c *Blocks) uncarry(b *block) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := b.carried
	b.carried = 0
	return n
}

// grew adds n bytes to the size of a block.
func (c *Blocks) grew(b *block, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.place == nil {
		return // it has been dropped meanwhile
	}
	b.size += n
	c.addLocked(int64(n))
}

// text returns the bytes of a block, whose objects the caller has, in a form.
func (c *Blocks) text(b *block, run []*wire.Object, f BlockForm) *text {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, again := b.texts[f]
	if t != nil {
		return t
	}
	had := b.before != nil
	t, keep := b.makeLocked(run, f, again)
	for _, bad := range t.bad {
		c.logger.Error("cannot encode object", "cluster", b.key.Cluster, "resource",
			b.key.Resource.GroupResource().String(), "err", bad.err)
	}
	if had && b.before == nil {
		c.grew(b, -c.uncarry(b))
	}
	if !keep {
		b.texts[f] = nil
		return t
	}
	b.keepLocked(c, f, t)
	return t
}

// keepLocked keeps a text that is packed, unless it is loose.
func (b *block) keepLocked(c *Blocks, f BlockForm, t *text) {
	if t.plain && t.length > loose {
		return
	}
	b.texts[f] = t
	c.grew(b, len(t.packed)+4*len(t.ends)+4*len(t.pieces))
}

// segment returns a text as part of a gzip stream, and keeps both: a segment is expensive to
// make, and small.
func (c *Blocks) segment(b *block, f BlockForm, t *text) *Segment {
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
	s := Deflate(raw)
	if kept == nil {
		packed := *t // other readers have the text
		packed.pack(raw)
		b.keepLocked(c, f, &packed)
		kept = b.texts[f]
	}
	release()
	if kept != nil {
		with := *kept // other readers have the text
		with.gzip = &s
		b.texts[f] = &with
		c.grew(b, len(s.deflated))
	}
	return &s
}

// makeLocked encodes the objects, or takes their bytes from the block before. It compresses the
// bytes, for the text to be kept, if they were requested before, of these objects or of those
// of the block before. A list in protobuf requests them twice, for its length and to write them.
func (b *block) makeLocked(run []*wire.Object, f BlockForm, again bool) (t *text, keep bool) {
	known, before, release := b.beforeLocked(f)
	defer release()
	keep = again || before || f.Encoding == Protobuf
	buf := GetBuffer()
	defer PutBuffer(buf)
	raw := (*buf)[:0]
	t = &text{ends: make([]uint32, len(run))}
	for i, o := range run {
		at := len(raw)
		if at > 0 && f.separated() {
			raw = append(raw, ',')
		}
		var err error
		if was, ok := known[o]; ok {
			raw = append(raw, was...)
		} else if raw, err = f.write(raw, o); err != nil {
			// Readers that do not select this object get the others.
			raw, t.bad = raw[:at], append(t.bad, badObject{i, err})
		}
		t.ends[i] = uint32(len(raw))
	}
	*buf = raw
	if keep {
		t.pack(raw)
	} else {
		t.packed, t.plain, t.length = slices.Clone(raw), true, len(raw)
	}
	return t, keep
}

// pack compresses the bytes. They stay the caller's.
func (t *text) pack(raw []byte) {
	t.length, t.plain = len(raw), false
	buf := GetBuffer()
	defer PutBuffer(buf)
	packed := (*buf)[:0]
	for piece := range slices.Chunk(raw, PieceBytes) {
		packed = slices.Grow(packed, s2.MaxEncodedLen(len(piece)))
		packed = packed[:len(packed)+len(s2.Encode(packed[len(packed):cap(packed)], piece))]
		t.pieces = append(t.pieces, uint32(len(packed)))
	}
	*buf = packed
	if len(packed) > len(raw)*3/4 {
		packed, t.pieces, t.plain = raw, nil, true
	}
	t.packed = slices.Clone(packed)
}

// separated reports whether there are commas between the objects.
func (f BlockForm) separated() bool { return f.Encoding == JSON && !f.Events }

// write appends an object. After an error it returns b as it was.
func (f BlockForm) write(b []byte, o *wire.Object) ([]byte, error) {
	out, err := Guard(o, func() ([]byte, error) {
		if f.Events {
			return f.Event(b, stream.Added, o)
		}
		return f.Item(b, o)
	})
	if err != nil {
		return b, err
	}
	return out, nil
}

// beforeLocked returns the bytes of objects that the block before has, and whether it was
// requested in this form.
func (b *block) beforeLocked(f BlockForm) (known map[*wire.Object][]byte, requested bool, release func()) {
	before := b.before
	if before == nil {
		return nil, false, func() {}
	}
	before.mu.Lock()
	t, requested := before.texts[f]
	delete(before.texts, f)
	before.before = nil
	if len(before.texts) == 0 {
		b.before = nil
	}
	before.mu.Unlock()
	if t == nil {
		return nil, requested, func() {}
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
	return known, requested, release
}

// span returns where the bytes of one object are.
func (t *text) span(i int, f BlockForm) (from, to uint32) {
	to = t.ends[i]
	if i > 0 {
		from = t.ends[i-1]
	}
	if from > 0 && from < to && f.separated() {
		from++
	}
	return from, to
}

// at returns the bytes of one object.
func (t *text) at(raw []byte, i int, f BlockForm) []byte {
	from, to := t.span(i, f)
	return raw[from:to]
}

// comma separates the items of a list in JSON.
var comma = []byte(",")

// pick writes the bytes of some objects, with commas between them if the form has those.
func (t *text) pick(f BlockForm, objects []int, write func([]byte) error) error {
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

// open returns the bytes, until they are released.
func (t *text) open() (raw []byte, release func()) {
	if t.plain {
		return t.packed, func() {}
	}
	buf := GetBuffer()
	raw = slices.Grow((*buf)[:0], t.length)[:t.length]
	for i := range t.pieces {
		t.unpack(i, raw[i*PieceBytes:])
	}
	*buf = raw
	return raw, func() { PutBuffer(buf) }
}

// writeTo writes the bytes, unpacking one piece at a time.
func (t *text) writeTo(w io.Writer) error {
	if t.plain {
		_, err := w.Write(t.packed)
		return err
	}
	buf := GetPiece()
	defer PutPiece(buf)
	for i := range t.pieces {
		if _, err := w.Write(t.unpack(i, buf[:])); err != nil {
			return err
		}
	}
	return nil
}

// unpack decompresses a piece into a buffer that has room for it, and returns it.
func (t *text) unpack(i int, into []byte) []byte {
	from := uint32(0)
	if i > 0 {
		from = t.pieces[i-1]
	}
	raw, err := s2.Decode(into, t.packed[from:t.pieces[i]])
	if err != nil {
		panic("encode: block is damaged: " + err.Error()) // s2 wrote it
	}
	return raw
}
