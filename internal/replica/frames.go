// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"log/slog"
	"sync"

	"github.com/watershed-project/watershed/wire"
)

// frames keeps the bytes of events and of single objects that were sent lately, so
// that each is made once however many watch. It is bounded by bytes; what was made
// first goes first. All methods are safe for concurrent use.
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
	// told says that the error was logged: once, however many would have got it.
	told sync.Once
	// size is the cache's, under its lock: 0 until the frame is made.
	size int
}

func newFrames(max int, logger *slog.Logger) *frames {
	return &frames{max: max, logger: logger, byKey: map[frameKey]*frame{}}
}

// get is the bytes, which must not be changed.
func (c *frames) get(key frameKey) ([]byte, error) {
	f := c.of(key)
	return f.data, f.err
}

// try is the bytes for who goes on without an object that cannot be written, which is
// logged.
func (c *frames) try(key frameKey) ([]byte, bool) {
	f := c.of(key)
	if f.err != nil {
		f.told.Do(func() { c.logger.Error("object cannot be sent", "object", key.object.String(), "err", f.err) })
	}
	return f.data, f.err == nil
}

// of is the frame, made if nobody has.
func (c *frames) of(key frameKey) *frame {
	c.mu.Lock()
	f := c.byKey[key]
	if f == nil {
		f = &frame{}
		c.byKey[key] = f
		c.ring = append(c.ring, key)
	}
	c.mu.Unlock()
	f.once.Do(func() {
		f.data, f.err = c.make(key)
		c.made(key, f)
	})
	return f
}

func (c *frames) make(key frameKey) ([]byte, error) {
	o := key.object
	if key.version != 0 {
		o = o.With(wire.Patch{Version: key.version})
	}
	switch key.event {
	case 0:
		return key.form.object(nil, o)
	case itemFrame:
		return key.form.item(nil, o)
	}
	data, err := key.form.event(nil, key.event, o)
	if err == nil && key.gzip {
		data = deflate(data).member()
	}
	return data, err
}

// frameOverhead is what an entry costs besides its bytes.
const frameOverhead = 250

// made counts what was made, and drops the oldest.
func (c *frames) made(key frameKey, f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != f {
		return // it was dropped meanwhile
	}
	f.size = len(f.data) + frameOverhead
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
