// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import "testing"

// BenchmarkCharge measures what an arriving object costs below the limits, from one source
// and from several at once.
func BenchmarkCharge(b *testing.B) {
	u := newAccount("eu", Limits{}.withDefaults()).open()
	u.account.limit = amount{1 << 60, 1 << 60}
	t := &testing.T{}
	o := newPod(t, "a", 1, nil)
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if err := u.charge(o, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if err := u.charge(o, false); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
