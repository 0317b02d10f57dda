// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"fmt"
	rand "math/rand/v2"
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// stalled returns a directory that does not run, with mirrors whose states are stored, and a
// function that appends a batch of some size.
func stalled(tb testing.TB, mirrors int, buffer int64) (d *Directory, all []*Mirror, add func(m *Mirror, size int)) {
	tb.Helper()
	d = openDirectory(tb, tb.TempDir(), &Options{Buffer: buffer})
	for i := range mirrors {
		m, err := d.Cluster(fmt.Sprint("c", i/60)).Mirror(identify(fmt.Sprint("r", i%60)), MirrorOptions{})
		must(tb, err)
		m.entry.accept, m.entry.linked = true, true
		all = append(all, m)
	}
	s := store.New((*wire.Object).Key, &store.Options[*wire.Object]{Same: wire.Same})
	o := newObject(tb, "shop/a", 5, "x")
	return d, all, func(m *Mirror, size int) {
		changes := make([]store.Change[*wire.Object], size)
		for i := range changes {
			changes[i] = store.Change[*wire.Object]{Type: delta.Updated, Key: o.Key(), New: o, Old: o, Version: 5}
		}
		m.Append(Batch{State: s.Snapshot(), Changes: changes})
	}
}

// checkQueue returns an error if the parts of the queue do not agree.
func (d *Directory) checkQueue(all []*Mirror) error {
	var sum int64
	batches, mirrors := 0, 0
	for _, m := range all {
		var own int64
		for _, e := range m.entry.waiting {
			own += e.Value.(*queuedBatch).size
		}
		if own != m.entry.queued || len(m.entry.waiting) > 0 && d.ledger.fullest[m.entry.place] != m {
			return fmt.Errorf("%v has %d bytes in %d batches instead of %d", m.id, own, len(m.entry.waiting),
				m.entry.queued)
		}
		if sum, batches = sum+own, batches+len(m.entry.waiting); len(m.entry.waiting) > 0 {
			mirrors++
		}
		if len(d.ledger.fullest) > 0 && own > d.ledger.fullest[0].entry.queued {
			return fmt.Errorf("%v has %d bytes, and the fullest mirror %d", m.id, own, d.ledger.fullest[0].entry.queued)
		}
	}
	if sum != d.ledger.queued || batches != d.ledger.queue.Len() || mirrors != len(d.ledger.fullest) {
		return fmt.Errorf("%d bytes of %d, %d batches of %d, %d mirrors of %d", sum, d.ledger.queued, batches,
			d.ledger.queue.Len(), mirrors, len(d.ledger.fullest))
	}
	return nil
}

// TestQueue_dropsTheFullest appends random batches while nothing is written. The queue stays
// within its limit, and a small mirror is not dropped for a large one.
func TestQueue_dropsTheFullest(t *testing.T) {
	const buffer = 100 << 10
	d, all, add := stalled(t, 50, buffer)
	r := rand.New(rand.NewPCG(1, 2))
	small := all[1:]
	for i := range 2000 {
		m := small[r.IntN(len(small))]
		size := 1
		if i%4 == 0 {
			m, size = all[0], 5
		}
		m.entry.accept, m.entry.linked = true, true
		add(m, size)
		must(t, d.checkQueue(all))
		if d.ledger.queued > buffer {
			t.Fatalf("%d bytes are queued", d.ledger.queued)
		}
		if i < 150 && d.ledger.dropped > 0 {
			for _, m := range small {
				if m.entry.status.Dropped > 0 {
					t.Fatalf("a mirror with %d bytes was dropped", m.entry.queued)
				}
			}
		}
	}
	if all[0].entry.status.Dropped == 0 {
		t.Error("nothing was dropped: hardly a test")
	}
	d.ledger.drop(all[0], nil, d.opened)
	must(t, d.checkQueue(all))
	last := map[*Mirror]uint64{}
	for _, q := range d.ledger.takeLocked() {
		if q.epoch < last[q.mirror] {
			t.Errorf("%v: epoch %d follows %d", q.mirror.id, q.epoch, last[q.mirror])
		}
		last[q.mirror] = q.epoch
	}
	d.ledger.queued = 0
	must(t, d.checkQueue(all))
}

// BenchmarkAppend_stalled measures an append while nothing is written and the queue is full.
// It must not depend on the number of mirrors.
func BenchmarkAppend_stalled(b *testing.B) {
	for _, mirrors := range []int{600, 60_000} {
		b.Run(fmt.Sprint(mirrors), func(b *testing.B) {
			_, all, add := stalled(b, mirrors, int64(mirrors)*1000)
			i := 0
			for ; i < 2*mirrors; i++ {
				add(all[i%mirrors], 1)
			}
			for b.Loop() {
				i++
				m := all[i%mirrors]
				m.entry.accept = true
				add(m, 1)
			}
		})
	}
}

// TestRound_buffers keeps the buffers of the writer, and none for each cluster.
func TestRound_buffers(t *testing.T) {
	d := openDirectory(t, t.TempDir(), nil)
	for i := range 20 {
		m, err := d.Cluster(fmt.Sprint("c", i)).Mirror(identify("configmaps"), MirrorOptions{})
		must(t, err)
		w := newWorld(t, m, 1)
		w.fill(10)
		step(d)
		w.change(20)
		step(d)
	}
	for _, c := range d.ledger.openClusters() {
		if c.log.buffer != nil {
			t.Errorf("cluster %s keeps a buffer of %d bytes", c.name, cap(c.log.buffer))
		}
	}
	if n := len(d.spare); n == 0 || n > maxSpare {
		t.Errorf("%d buffers are kept", n)
	}
}
