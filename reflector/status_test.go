// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
)

func (w *world) wantStatus(want reflector.Status) {
	w.t.Helper()
	synctest.Wait()
	if diff := gocmp.Diff(want, w.Status(), cmpopts.EquateErrors()); diff != "" {
		w.t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatus_alongALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		want := reflector.Status{}
		w.wantStatus(want)

		w.puts("a", "b")
		w.server.fail(watches, fault{pace: time.Second})
		w.start()
		want.State, want.Since, want.Watches = reflector.Listing, time.Now(), 1
		w.wantStatus(want)
		w.let(time.Second)
		want.Heard = time.Now() // the first object
		w.wantStatus(want)
		w.let(2 * time.Second)
		want.State, want.Since, want.Heard = reflector.Watching, time.Now(), time.Now()
		want.Version, want.Streams, want.Lists = "2", true, 1
		w.wantStatus(want)

		w.puts("c")
		w.let(time.Second)
		want.Heard, want.Version = time.Now(), "3"
		w.wantStatus(want)

		// After a failure the copy is stale.
		w.server.fail(watches, fault{err: busy(time.Minute)})
		w.server.send(item{err: errReset})
		w.let(time.Second)
		failed := time.Now()
		want.State, want.Since, want.StaleSince = reflector.Waiting, failed, failed
		want.Err, want.ErrAt, want.Failures = w.Status().Err, failed, 2
		want.FailingSince = failed
		expect.Equal(t, reflector.ReasonOf(want.Err), reflector.Busy)
		want.Heard = failed // the check was answered
		w.wantStatus(want)

		// After the recovery it is not. The error is kept.
		w.untilState(reflector.Watching)
		want.State, want.Since, want.StaleSince = reflector.Watching, w.Status().Since, time.Time{}
		want.FailingSince = time.Time{}
		want.Heard, want.Watches, want.Recoveries = want.Since, 2, 1
		w.wantStatus(want)
		within(t, want.Since.Sub(want.ErrAt), time.Minute, 62*time.Second)

		// During a list the copy is stale.
		w.server.fail(watches, fault{pace: 10 * time.Second})
		w.server.send(item{err: expired})
		w.untilState(reflector.Listing)
		s := w.Status()
		expect.Equal(t, s.StaleSince, s.ErrAt)
		w.untilState(reflector.Watching)
		want = w.Status()
		expect.Equal(t, want.StaleSince, time.Time{})
		expect.Equal(t, want.Lists, 2)

		// The resource vanishes.
		w.server.vanish()
		w.untilState(reflector.Parked)
		s = w.Status()
		expect.Equal(t, s.State, reflector.Parked)
		expect.Equal(t, s.StaleSince, s.Since)
		expect.Equal(t, errors.Is(s.Err, notServed), true)

		w.stopRun()
		s = w.Status()
		expect.Equal(t, s.State, reflector.Idle)
		expect.Equal(t, s.Since, time.Now())
	})
}

func TestStatus_isStaleAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, nil)
		w.let(time.Second)
		w.stopRun()
		s := w.Status()
		expect.Equal(t, s.State, reflector.Idle)
		expect.Equal(t, s.StaleSince, time.Now())
		expect.Equal(t, s.Err, nil)
		expect.Equal(t, s.Failures, 0)
	})
}

func TestStatus_isNotStaleBeforeItWasCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.server.fail(watches, fault{err: busy(time.Minute)})
		w.start().let(time.Second)
		s := w.Status()
		expect.Equal(t, s.State, reflector.Waiting)
		expect.Equal(t, s.StaleSince, time.Time{})
	})
}

func TestStatus_countsChecksAsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		w.server.skip(1)
		w.start().let(10 * time.Second)
		w.server.send(end)
		w.let(0)
		w.wantAsked("stream", `list "1" or newer, limit 1`, "watch 1")
		expect.Equal(t, w.Status().Heard, time.Now())
	})
}

func TestError_saysItsReason(t *testing.T) {
	// An error need not have more than a reason.
	err := error(&reflector.Error{Reason: reflector.Busy})
	expect.Equal(t, err.Error(), "busy")
	expect.Equal(t, errors.Unwrap(err), nil)
	expect.Equal(t, errors.Is(&reflector.Error{Err: errReset}, errReset), true)
	expect.Equal(t, (&reflector.Error{Reason: reflector.Busy, Err: errReset}).Error(), "connection reset")
	expect.Equal(t, reflector.ReasonOf(errors.Join(errReset, expired)), reflector.Expired)
	expect.Equal(t, reflector.ReasonOf(errReset), reflector.Unknown)
	expect.Equal(t, reflector.ReasonOf(nil), reflector.Unknown)
}

func TestNames_areWords(t *testing.T) {
	var states, reasons []string
	for s := reflector.Idle; s <= reflector.Parked; s++ {
		states = append(states, s.String())
	}
	for r := reflector.Unknown; r <= reflector.Undecodable; r++ {
		reasons = append(reasons, r.String())
	}
	expect.Equal(t, states, []string{"idle", "listing", "watching", "waiting", "resuming", "parked"})
	expect.Equal(t, reasons, []string{
		"unknown", "expired", "too large version", "busy", "refused", "not served",
		"not supported", "internal", "undecodable",
	})
}

// TestStatus_failingSinceTheFirstFailure: retries of a copy that was never current do not make
// it look as if it had just begun to fail.
func TestStatus_failingSinceTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, nil)
		for range 5 {
			w.server.fail(lists, fault{err: errReset})
			w.server.fail(watches, fault{err: errReset})
		}
		w.start()
		synctest.Wait()
		first := w.Status().ErrAt
		w.until("failed again", func() bool { return w.Status().Failures > 2 })
		if s := w.Status(); !s.FailingSince.Equal(first) || !s.ErrAt.After(first) || !s.StaleSince.IsZero() {
			t.Errorf("failing since %v, last failure at %v, want the first at %v", s.FailingSince, s.ErrAt, first)
		}
		w.untilState(reflector.Watching)
		expect.Equal(t, w.Status().FailingSince, time.Time{})
	})
}
