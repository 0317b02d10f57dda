// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package freshness_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/freshness"
	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/reflector"
)

// headers returns the headers for some copies.
func headers(add func(f *freshness.Freshness)) http.Header {
	var f freshness.Freshness
	add(&f)
	h := http.Header{}
	f.Write(h)
	return h
}

func TestFreshness_warnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(time.Hour)
		for _, test := range []struct {
			cluster string
			status  reflector.Status
			want    string
		}{
			{"eu", reflector.Status{State: reflector.Watching, Err: errors.New("an earlier error")}, ""},
			{"eu", reflector.Status{State: reflector.Listing}, ""},
			{"eu", reflector.Status{State: reflector.Listing, Err: errors.New("no stream")}, ""},
			{
				"eu", reflector.Status{State: reflector.Listing, StaleSince: began},
				`299 - "cluster eu has been stale for 1h0m0s"`,
			},
			{
				"eu", reflector.Status{
					State: reflector.Waiting, StaleSince: began, Err: errors.New("refused"),
				}, `299 - "cluster eu has been stale for 1h0m0s: refused"`,
			},
			{
				"", reflector.Status{State: reflector.Parked, StaleSince: began},
				`299 - "the copy has been stale for 1h0m0s"`,
			},
			// It was listed, and its watch has never succeeded.
			{
				"eu", reflector.Status{
					State: reflector.Waiting, Err: errors.New("refused"),
				}, `299 - "cluster eu is not followed: refused"`,
			},
			{"eu", reflector.Status{State: reflector.Idle}, `299 - "cluster eu is not followed"`},
		} {
			h := headers(func(f *freshness.Freshness) { f.Add(test.cluster, test.status) })
			if got := h.Get("Warning"); got != test.want {
				t.Errorf("%q %+v: %q, want %q", test.cluster, test.status, got, test.want)
			}
		}
	})
}

func TestFreshness_ageIsThatOfTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		time.Sleep(90 * time.Second)
		h := headers(func(f *freshness.Freshness) {
			for i, heard := range []time.Time{began.Add(time.Minute), began, {}, began.Add(time.Second)} {
				f.Add(fmt.Sprint(i), reflector.Status{State: reflector.Watching, Heard: heard})
			}
		})
		expect.Equal(t, h, http.Header{freshness.Header: {"1m30s"}})
		expect.Equal(t, headers(func(*freshness.Freshness) {}), http.Header{})
	})
}

func TestFreshness_isBounded(t *testing.T) {
	h := headers(func(f *freshness.Freshness) {
		for i := range 1000 {
			f.Add(strings.Repeat("c", 300), reflector.Status{
				State: reflector.Waiting, StaleSince: time.Now(), Err: errors.New(strings.Repeat("x", 8<<10)),
			})
			f.AddUnsynced(fmt.Sprint("new-", i))
		}
	})
	all := h.Values("Warning")
	expect.Equal(t, len(all), warning.Limit+2)
	expect.Equal(t, all[warning.Limit:], []string{
		`299 - "990 more clusters are stale"`,
		`299 - "not synced yet, and left out: cluster new-0, new-1, new-2, new-3, new-4, new-5, new-6, new-7 and 992 more"`,
	})
	for _, text := range all {
		if len(text) > 270 {
			t.Errorf("a warning has %d bytes", len(text))
		}
	}
}

// TestFreshness_ageOfAStoredState has a state that an earlier process has read. This one has not
// heard from the server.
func TestFreshness_ageOfAStoredState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := time.Now()
		time.Sleep(time.Hour)
		h := headers(func(f *freshness.Freshness) {
			f.Add("eu", reflector.Status{State: reflector.Waiting, StaleSince: stored})
			f.Add("us", reflector.Status{State: reflector.Watching, Heard: time.Now()})
		})
		expect.Equal(t, h.Get(freshness.Header), "1h0m0s")
	})
}
