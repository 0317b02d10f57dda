// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"errors"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/storage"
)

// TestBeyond_periodEnds ends a period at the first entry or gap after it. Entries from the
// future are from before the clock was set back: a period that ends now has them.
func TestBeyond_periodEnds(t *testing.T) {
	now := time.Now()
	entry := func(at time.Time) *storage.Entry { return &storage.Entry{Record: storage.Record{Time: at}} }
	gap := func(since time.Time) error { return &storage.GapError{Since: since, Until: since.Add(time.Second)} }
	for _, c := range []struct {
		what   string
		entry  *storage.Entry
		err    error
		until  time.Time
		beyond bool
	}{
		{"an entry before", entry(now.Add(-2 * time.Minute)), nil, now.Add(-time.Minute), false},
		{"an entry after", entry(now.Add(-time.Second)), nil, now.Add(-time.Minute), true},
		{"an entry from the future, up to now", entry(now.Add(time.Hour)), nil, now, false},
		{"an entry from the future, up to a time before", entry(now.Add(time.Hour)), nil, now.Add(-time.Minute), true},
		{"a gap that begins before", entry(time.Time{}), gap(now.Add(-2 * time.Minute)), now.Add(-time.Minute), false},
		{"a gap that begins after", entry(time.Time{}), gap(now.Add(-time.Second)), now.Add(-time.Minute), true},
		{"damage", entry(time.Time{}), errors.New("damage"), now.Add(-time.Minute), false},
	} {
		if got := beyond(c.entry, c.err, c.until); got != c.beyond {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestPastChanges_missingHasATime puts missing changes after those that were read.
func TestPastChanges_missingHasATime(t *testing.T) {
	since := time.Date(2026, 11, 18, 9, 0, 0, 0, time.UTC)
	read := since.Add(time.Minute)
	for _, c := range []struct {
		last time.Time
		err  error
		want time.Time
	}{
		{time.Time{}, errRemoved, since},
		{read, errRemoved, read},
		{read, &storage.GapError{}, read},
		{read, &storage.GapError{Since: read.Add(time.Second)}, read.Add(time.Second)},
		{time.Time{}, &storage.GapError{Since: since.Add(-time.Hour)}, since},
	} {
		r := partReader{
			PastChanges: &PastChanges{Since: since, last: c.last, files: &feedFiles{reader: NewDiskReader(nil)}},
		}
		r.missing(c.err)
		if len(r.part) != 1 || !r.part[0].Time.Equal(c.want) {
			t.Errorf("%v after %v: %+v", c.err, c.last, r.part)
		}
	}
}
