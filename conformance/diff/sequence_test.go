// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedFlag = flag.Uint64("diff.seed", 0, "play the one sequence with this seed, and print it")
	baseFlag = flag.Uint64("diff.base", 0, "first seed of a run; 0 is a random one")
)

// TestMain lets the heap grow: it is small, and most of it is text to compare.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run()
}

// sequence is one random run of operations.
type sequence struct {
	*rand.Rand
	seed  uint64
	steps []string
	tell  func(format string, args ...any)
}

// mismatch is the value that check panics with, to leave a sequence from any depth.
type mismatch struct{ text string }

// step records an operation before it is applied.
func (s *sequence) step(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.steps = append(s.steps, text)
	if s.tell != nil {
		s.tell("%3d %s", len(s.steps), text)
	}
}

// check ends the sequence if ours differs from client-go's.
func (s *sequence) check(what, ours, theirs string) {
	if ours != theirs {
		panic(mismatch{fmt.Sprintf("%s:\n  ours      %s\n  client-go %s", what, ours, theirs)})
	}
}

// chance returns true once in n times.
func (s *sequence) chance(n int) bool { return s.IntN(n) == 0 }

// play runs one sequence and returns the failure.
func (s *sequence) play(body func(*sequence)) (failure string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case mismatch:
			failure = p.text
		default:
			failure = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	body(s)
	return ""
}

func newSequence(seed uint64) *sequence {
	return &sequence{Rand: rand.New(rand.NewPCG(seed, 0)), seed: seed}
}

// playAll runs n sequences, a twentieth under -short, on all processors, and
// stops at the first that fails.
func playAll(t *testing.T, n int, body func(*sequence)) {
	t.Helper()
	if *seedFlag != 0 {
		s := newSequence(*seedFlag)
		s.tell = t.Logf
		if failure := s.play(body); failure != "" {
			t.Error(failure)
		}
		return
	}
	if testing.Short() {
		n /= 20
	}
	base := *baseFlag
	if base == 0 {
		base = rand.Uint64()
	}
	t.Logf("%d sequences from -diff.base=%d", n, base)
	var next atomic.Uint64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !failed.Load() {
				i := next.Add(1) - 1
				if i >= uint64(n) {
					return
				}
				s := newSequence(max(1, base+i)) // 0 is not a seed
				if failure := s.play(body); failure != "" {
					failed.Store(true)
					t.Errorf("seed %d, step %d: %s\nsteps:\n  %s\nagain: go test ./diff -run '%s$' -diff.seed=%d -v",
						s.seed, len(s.steps), failure, strings.Join(s.steps, "\n  "), t.Name(), s.seed)
				}
			}
		})
	}
	wg.Wait()
}
