// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package expect compares values and waits for conditions in tests. The standard
// library and go-cmp do the rest: there is no assertion for each kind of comparison.
package expect

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/watershed-project/watershed/internal/timer"
)

// Equal reports an error if two values differ, and shows where.
func Equal[V any](tb testing.TB, got, want V) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("mismatch (-want +got):\n%s", diff)
	}
}

// NoError ends the test if err is not nil.
func NoError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// patience is how long Soon waits, and Eventually at least. Nothing takes that long on an idle
// machine, and a busy one must not fail a test.
const patience = time.Minute

// Soon waits until ok returns true, and ends the test if that takes more than a minute.
// The text names what it waits for.
func Soon(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// Eventually calls check until it returns nil, and ends the test with the last error if
// that takes longer than within and longer than a minute.
func Eventually(tb testing.TB, within time.Duration, check func() error) {
	tb.Helper()
	within = max(within, patience)
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("after %v: %v", within, err)
		}
	}
}

// Until calls check until it returns nil or ctx ends. Its error has the last error of
// check from before ctx ended, and that of ctx.
func Until(ctx context.Context, check func() error) error {
	var last error
	for {
		err := check()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if timer.Sleep(ctx, 100*time.Millisecond) != nil {
			return errors.Join(last, ctx.Err())
		}
	}
}
