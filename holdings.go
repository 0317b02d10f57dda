// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"sync/atomic"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// holdings counts the objects that a store holds, so that nothing has to walk them. The
// writer and the goroutine that packs keep it up to date. It costs 16 bytes, and two
// atomic additions for each batch and for each object that is packed.
type holdings struct {
	// bytes is the sum of the objects' sizes, packed the number of packed objects.
	bytes, packed atomic.Int64
}

// apply counts the changes of a batch. The sizes of the objects must not change meanwhile.
func (h *holdings) apply(changes []change) {
	var bytes, packed int64
	for i := range changes {
		c := &changes[i]
		if c.Type == delta.Sync {
			continue
		}
		if c.Type != delta.Deleted {
			bytes += int64(c.New.Size())
			packed += one(c.New.Packed())
		}
		if c.Old != nil {
			bytes -= int64(c.Old.Size())
			packed -= one(c.Old.Packed())
		}
	}
	h.bytes.Add(bytes)
	h.packed.Add(packed)
}

// resize calls pack, which may change the size of an object, and counts the difference.
// Held is called only if there is one: it reports whether the store has the object.
func (h *holdings) resize(o *wire.Object, pack func(), held func() bool) {
	size, packed := o.Size(), o.Packed()
	pack()
	if now := o.Size(); (now != size || o.Packed() != packed) && held() {
		h.bytes.Add(int64(now - size))
		h.packed.Add(one(o.Packed()) - one(packed))
	}
}

// one returns 1 for true and 0 for false.
func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
