// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"log/slog"
	"sync"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

// Frames keeps the bytes of events and of single objects that were sent lately, so that
// each is made once for all watchers. It is bounded by bytes, those of frames and of the
// objects that they are made of. The oldest are dropped first. All methods are safe for
// concurrent use.
type Frames struct {
	logger *slog.Logger

	// mu guards what follows.
	mu    sync.Mutex
	max   int
	byKey map[FrameKey]*frame
	ring  []FrameKey // oldest first, from at on
	at    int
	bytes int
}

// FrameKey is a state of an object, and how it is written. Event 0 is the object alone,
// [ItemFrame] an item of a list.
type FrameKey struct {
	Object *wire.Object
	Form   Form
	Event  stream.EventType
	// Version is written instead of the object's, unless it is 0.
	Version uint64
	// Gzip makes the frame a gzip stream of its own.
	Gzip bool
}

// ItemFrame is the event of frames that are items of lists.
const ItemFrame = stream.EventType(255)

type frame struct {
	once sync.Once
	data []byte
	err  error
	// size is the cache's, under its lock: 0 until the frame is made.
	size int
}

// NewFrames returns an empty cache of at most max bytes.
func NewFrames(max int, logger *slog.Logger) *Frames {
	return &Frames{max: max, logger: logger, byKey: map[FrameKey]*frame{}}
}

// Get returns the bytes of a frame, which must not be changed. The first caller makes
// them. If that fails, all callers get the error, and it is logged once.
func (c *Frames) Get(key FrameKey) ([]byte, error) {
	c.mu.Lock()
	f := c.byKey[key]
	if f == nil {
		f = &frame{}
		c.byKey[key] = f
		c.ring = append(c.ring, key)
	}
	c.mu.Unlock()
	f.once.Do(func() {
		if f.data, f.err = Guard(key.Object, key.encode); f.err != nil {
			c.logger.Error("cannot encode object", "object", key.Object.String(), "err", f.err)
		}
		c.made(key, f)
	})
	return f.data, f.err
}

// encode makes the bytes of a frame.
func (k FrameKey) encode() ([]byte, error) {
	o := k.Object
	if k.Version != 0 {
		o = o.With(wire.Patch{Version: k.Version})
	}
	switch k.Event {
	case 0:
		return k.Form.Object(nil, o)
	case ItemFrame:
		return k.Form.Item(nil, o)
	}
	data, err := k.Form.Event(nil, k.Event, o)
	if err == nil && k.Gzip {
		data = Deflate(data).Member()
	}
	return data, err
}

// frameOverhead is the size of an entry without its bytes and the object in its key.
const frameOverhead = 250

// made counts a new frame, and drops the oldest ones.
func (c *Frames) made(key FrameKey, f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != f {
		return // it was dropped meanwhile
	}
	// The key keeps the object alive after the store has dropped it.
	f.size = len(f.data) + frameOverhead + key.Object.Size()
	c.bytes += f.size
	c.dropLocked()
}

// Resize changes the bound, and drops the frames that exceed it.
func (c *Frames) Resize(max int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = max
	c.dropLocked()
}

// dropLocked drops the oldest frames until the others are within the bound.
func (c *Frames) dropLocked() {
	for c.bytes > c.max && c.at < len(c.ring) {
		old := c.ring[c.at]
		c.ring[c.at] = FrameKey{}
		c.at++
		if was := c.byKey[old]; was != nil {
			delete(c.byKey, old)
			c.bytes -= was.size
		}
	}
	if c.at > len(c.ring)/2 && c.at > 1024 {
		c.ring, c.at = append([]FrameKey(nil), c.ring[c.at:]...), 0
	}
}
