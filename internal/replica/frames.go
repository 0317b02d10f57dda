// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"log/slog"
	"sync"

	"github.com/watershed-project/watershed/wire"
)

// frames keeps the bytes of events and of single objects that were sent lately, so
// that each is made once however many watch. It is bounded by bytes, of frames and of
// the objects that they are made of; what was made first goes first. All methods are
// safe for concurrent use.
type frames struct {
	max    int
	logger *slog.Logger

	// mu guards what follows.
	mu    sync.Mutex
	byKey map[frameKey]*frame
	ring  []frameKey // oldest first, from at on
	at    int
	bytes int
}

// frameKey is a state of an object, and how it is written. Event 0 is the object
// alone.
type frameKey struct {
	object *wire.Object
	form   form
	event  wire.EventType
	// version, if it is not 0, is said instead of the object's.
	version uint64
	gzip    bool
}

type frame struct {
	once sync.Once
	data []byte
	err  error
	// size is the cache's, under its lock: 0 until the frame is made.
	size int
}

func newFrames(max int, logger *slog.Logger) *frames {
	return &frames{max: max, logger: logger, byKey: map[frameKey]*frame{}}
}

// get returns the bytes of a frame, which must not be changed. The first caller makes
// them. If that fails, all callers get the error, and it is logged once.
func (c *frames) get(key frameKey) ([]byte, error) {
	c.mu.Lock()
	f := c.byKey[key]
	if f == nil {
		f = &frame{}
		c.byKey[key] = f
		c.ring = append(c.ring, key)
	}
	c.mu.Unlock()
	f.once.Do(func() {
		if f.data, f.err = encode(key.object, key.encode); f.err != nil {
			c.logger.Error("cannot encode object", "object", key.object.String(), "err", f.err)
		}
		c.made(key, f)
	})
	return f.data, f.err
}

// encode makes the bytes of a frame.
func (k frameKey) encode() ([]byte, error) {
	o := k.object
	if k.version != 0 {
		o = o.With(wire.Patch{Version: k.version})
	}
	switch k.event {
	case 0:
		return k.form.object(nil, o)
	case itemFrame:
		return k.form.item(nil, o)
	}
	data, err := k.form.event(nil, k.event, o)
	if err == nil && k.gzip {
		data = deflate(data).member()
	}
	return data, err
}

// frameOverhead is the size of an entry without its bytes and the object in its key.
const frameOverhead = 250

// made counts what was made, and drops the oldest.
func (c *frames) made(key frameKey, f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != f {
		return // it was dropped meanwhile
	}
	// The key keeps the object alive after the store has dropped it.
	f.size = len(f.data) + frameOverhead + key.object.Size()
	c.bytes += f.size
	for c.bytes > c.max && c.at < len(c.ring) {
		old := c.ring[c.at]
		c.ring[c.at] = frameKey{}
		c.at++
		if was := c.byKey[old]; was != nil {
			delete(c.byKey, old)
			c.bytes -= was.size
		}
	}
	if c.at > len(c.ring)/2 && c.at > 1024 {
		c.ring, c.at = append([]frameKey(nil), c.ring[c.at:]...), 0
	}
}
