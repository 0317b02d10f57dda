// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package budget

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
)

// newBudget returns a budget of 1000 bytes whose memory the test sets, and the pressures that
// it has applied.
func newBudget(t *testing.T) (b *Budget, used *int64, applied *[]fleet.Pressure) {
	t.Helper()
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
	used, applied = new(int64), &[]fleet.Pressure{fleet.PressureNone}
	b = &Budget{
		limit: 1000, logger: slog.New(slog.DiscardHandler), read: func() (int64, uint64) { return *used, 7 },
		apply: func(m fleet.Memory) {
			if m.Room != 760-*used || m.Spare != 900-*used || m.Collections != 7 {
				t.Errorf("with %d of 1000 bytes the memory is %+v, want 760 and 900 bytes less that, and 7 collections",
					*used, m)
			}
			if last := len(*applied) - 1; last < 0 || (*applied)[last] != m.Pressure {
				*applied = append(*applied, m.Pressure)
			}
		},
	}
	return b, used, applied
}

func TestBudget_risesAndFalls(t *testing.T) {
	b, used, applied := newBudget(t)
	at := time.Unix(1e9, 0)
	steps := func(bytes int64, during time.Duration) {
		*used = bytes
		for end := at.Add(during); at.Before(end); at = at.Add(every) {
			b.step(at)
		}
	}
	expectApplied := func(want ...fleet.Pressure) {
		t.Helper()
		if got := (*applied)[1:]; !slices.Equal(got, want) {
			t.Errorf("at %d bytes %v were applied, want %v", *used, got, want)
		}
		*applied = (*applied)[len(*applied)-1:]
	}
	steps(599, time.Minute)
	expectApplied()
	steps(600, time.Second)
	expectApplied(fleet.PressureCaches)
	// A measure may suffice, so the next one waits until the memory is read again.
	steps(765, every)
	expectApplied(fleet.PressureHistory)
	steps(765, every)
	expectApplied(fleet.PressureFull)
	steps(765, time.Minute)
	expectApplied()
	// The margin keeps the pressure from changing back and forth.
	steps(715, time.Minute)
	expectApplied()
	steps(705, calm/2)
	steps(715, time.Second)
	steps(705, calm/2)
	expectApplied()
	steps(705, calm)
	expectApplied(fleet.PressureHistory)
	steps(900, every)
	expectApplied(fleet.PressureCritical)
	steps(100, 5*calm)
	expectApplied(fleet.PressureFull, fleet.PressureHistory, fleet.PressureCaches, fleet.PressureNone)
	if got := b.Stats(); got != (Stats{Limit: 1000, Used: 100}) {
		t.Errorf("stats are %+v", got)
	}
}

// TestReading_countsWhatIsLive checks that live objects count, and garbage does not.
func TestReading_countsWhatIsLive(t *testing.T) {
	const size = 64 << 20
	r := newReading()
	runtime.GC()
	before, earlier := r.read()
	kept := make([]byte, size)
	runtime.GC()
	with, later := r.read()
	runtime.KeepAlive(kept)
	runtime.GC()
	after, _ := r.read()
	if grown := with - before; grown < size*9/10 || grown > size*11/10 {
		t.Errorf("%d live bytes count as %d", size, grown)
	}
	if later <= earlier {
		t.Errorf("%d collections after one more, and %d before", later, earlier)
	}
	if left := after - before; left > size/10 {
		t.Errorf("%d bytes of garbage count as %d", size, left)
	}
}

func TestLimit(t *testing.T) {
	t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
	if got, from := Limit(7); got != 7 || from != "--memory-limit" {
		t.Errorf("with a flag: %d from %s", got, from)
	}
	debug.SetMemoryLimit(8)
	if got, from := Limit(0); got != 8 || from != "GOMEMLIMIT" {
		t.Errorf("with GOMEMLIMIT: %d from %s", got, from)
	}
	for content, want := range map[string]int64{
		"1073741824\n": 1 << 30, "max\n": 0, "9223372036854771712\n": 0, "": 0,
	} {
		for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
			root := t.TempDir()
			path := filepath.Join(root, name)
			expect.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			if got := containerLimit(root); got != want {
				t.Errorf("%s with %q: %d, want %d", name, content, got, want)
			}
		}
	}
}
