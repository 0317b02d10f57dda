// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
)

// recorder is a test that records how it fails.
type recorder struct {
	testing.TB
	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// fails runs a function and returns how the test would fail.
func fails(run func(tb testing.TB)) (failures []string) {
	r := new(recorder)
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		failures = r.failures
	}()
	run(r)
	return
}

func TestExpect_fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for name, run := range map[string]func(tb testing.TB){
			"Equal":      func(tb testing.TB) { expect.Equal(tb, 1, 2) },
			"NoError":    func(tb testing.TB) { expect.NoError(tb, broken) },
			"Soon":       func(tb testing.TB) { expect.Soon(tb, "it", func() bool { return false }) },
			"Eventually": func(tb testing.TB) { expect.Eventually(tb, time.Second, func() error { return broken }) },
		} {
			if got := fails(run); len(got) != 1 {
				t.Errorf("%s fails with %q, want one failure", name, got)
			}
		}
	})
}

func TestExpect_passes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		late := func() bool { return time.Since(began) > time.Second }
		lateErr := func() error {
			if time.Since(began) < 3*time.Second {
				return errors.New("too early")
			}
			return nil
		}
		if got := fails(func(tb testing.TB) {
			expect.Equal(tb, []int{1}, []int{1})
			expect.NoError(tb, nil)
			expect.Soon(tb, "a second", late)
			expect.Eventually(tb, time.Minute, lateErr)
			expect.NoError(tb, expect.Until(t.Context(), lateErr))
		}); len(got) > 0 {
			t.Errorf("failed with %q", got)
		}
	})
}

func TestUntil_keepsTheErrorBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := expect.Until(ctx, func() error {
			if ctx.Err() != nil {
				return errors.New("cannot ask any more")
			}
			time.Sleep(30 * time.Millisecond)
			return broken
		})
		if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}
