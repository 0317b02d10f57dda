// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

// TestAbsence_ofAMomentDeletesNothing: one replica of an extension API server does not
// have the resource for 100 ms, according to both its list and its discovery.
func TestAbsence_ofAMomentDeletesNothing(t *testing.T) {
	for name, only := range map[string]bool{"streamed": false, "listed": true} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{ListOnly: only})
			w.server.hide()
			w.server.send(item{err: notServed})
			synctest.Wait()
			expect.Equal(t, w.Status().State, reflector.Parked)
			expect.Equal(t, w.Status().StaleSince.IsZero(), false)
			expect.Equal(t, w.store.Snapshot().Len(), 3)
			w.let(100 * time.Millisecond)
			w.server.appear()
			w.let(2 * time.Second)
			expect.Equal(t, w.Status().State, reflector.Watching)
			w.wantGot("Replaced a@1", "Replaced b@2", "Replaced c@3", "Bookmark 3")
			w.wantCopy()
		})
	}
}

func TestAbsence_isConfirmedForAsLongAsTheOptionsSay(t *testing.T) {
	for name, tt := range map[string]struct {
		given, least, most time.Duration
	}{
		"default":       {0, 30 * time.Second, 31 * time.Second},
		"short":         {time.Second, time.Second, 2 * time.Second},
		"next to never": {time.Nanosecond, 0, time.Second},
	} {
		bubble(name, t, func(t *testing.T) {
			w := watching(t, &reflector.Options{Absence: tt.given})
			began := time.Now()
			w.server.vanish()
			w.until("empty", func() bool { return w.store.Snapshot().Len() == 0 })
			within(t, time.Since(began), tt.least, tt.most)
			expect.Equal(t, w.Status().State, reflector.Parked)
		})
	}
}

func TestAbsence_isNeverConfirmedIfItIsNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, &reflector.Options{Absence: -1})
		w.server.vanish()
		w.let(24 * time.Hour)
		w.wantGot()
		expect.Equal(t, w.store.Snapshot().Len(), 3)
		// The next complete list determines which objects exist.
		w.server.appear()
		w.puts("b")
		w.untilCopied()
		w.wantGot("Replaced b@7", "Deleted a@1 (missed)", "Deleted c@3 (missed)", "Bookmark 7")
	})
}

// TestAbsence_beginsAnewAfterAnyOtherAnswer: an API server that is stopping reports that
// it does not have the resource. It is then unreachable for a while and, when it starts,
// reports the same again.
func TestAbsence_beginsAnewAfterAnyOtherAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, &reflector.Options{Park: time.Second, Absence: 10 * time.Second})
		w.server.hide()
		w.server.send(item{err: notServed})
		w.let(9 * time.Second)
		w.server.fail(serves, fault{err: refused})
		w.let(5 * time.Second)
		expect.Equal(t, w.store.Snapshot().Len(), 3)
		w.until("empty", func() bool { return w.store.Snapshot().Len() == 0 })
	})
}
