// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package delta_test

import (
	"testing"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/expect"
)

// FuzzFIFO runs bytes as operations on the queue and on the model, and compares all
// visible state after each.
func FuzzFIFO(f *testing.F) {
	f.Add(true, []byte{0, 1, 2, 0, 16, 1, 200, 7, 3, 3, 5, 5})
	f.Add(false, []byte{0, 0, 0, 3, 4, 4, 32, 64, 5, 3, 6, 1, 2})
	f.Fuzz(func(t *testing.T, withKnown bool, ops []byte) {
		ctx := t.Context()
		if len(ops) > 300 {
			ops = ops[:300]
		}
		m := &model{}
		opts := &delta.Options[pod]{Version: podVersion}
		if withKnown {
			m.known = known{}
			opts.Known = m.known
		}
		fifo := delta.New(podKey, opts)
		for step, op := range ops {
			p := podOf(int(op>>4)%6, step+1)
			switch op % 8 {
			case 0:
				expect.NoError(t, fifo.Add(ctx, p))
				m.change(delta.Added, p)
			case 1:
				expect.NoError(t, fifo.Update(ctx, p))
				m.change(delta.Updated, p)
			case 2:
				expect.NoError(t, fifo.Delete(ctx, p))
				m.change(delta.Deleted, p)
			case 3:
				var list []pod
				for n := range 6 {
					if op>>(n%5)&1 == 1 {
						list = append(list, podOf(n, step+1))
					}
				}
				expect.NoError(t, fifo.Replace(ctx, list, uint64(step)))
				m.replace(list, uint64(step))
			case 4:
				expect.NoError(t, fifo.Resync(ctx))
				m.resync()
			case 5, 6:
				if len(m.queued) == 0 {
					continue
				}
				want, wantInitial := m.pop()
				expect.NoError(t, fifo.Pop(ctx, func(ds delta.Deltas[pod], initial bool) error {
					expect.Equal(t, ds, want)
					expect.Equal(t, initial, wantInitial)
					if withKnown {
						m.known.apply(ds)
					}
					return nil
				}))
			case 7:
				if len(m.queued) == 0 {
					continue
				}
				var got delta.Deltas[pod]
				expect.NoError(t, fifo.Drain(ctx, func(ds delta.Deltas[pod], _ bool) error {
					for _, d := range ds {
						if d.Type != delta.Bookmark {
							got = append(got, d)
						}
					}
					return nil
				}))
				expect.Equal(t, got, m.queued)
				if withKnown {
					m.known.apply(got)
				}
				m.queued, m.initial = nil, 0
			}
			expect.Equal(t, fifo.ListKeys(), append([]string{}, m.keys()...))
			expect.Equal(t, fifo.HasSynced(), m.synced())
			expect.Equal(t, fifo.Len(), len(m.queued))
			for _, key := range m.keys() {
				ds, _ := fifo.GetByKey(key)
				expect.Equal(t, ds, m.of(key))
			}
			if t.Failed() {
				t.Fatalf("after step %d (operation %d of %v)", step, op%8, ops)
			}
		}
	})
}
