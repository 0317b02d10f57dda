// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package freshness makes the headers of a response that report how old the copies are
// that it was made from: Watershed-Age, and a Warning for each copy that is not current.
package freshness

import (
	"fmt"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/internal/warning"
	"github.com/watershed-project/watershed/reflector"
)

// Header is the header with the time since the server was last heard from. With several
// clusters it is that of the cluster that has been silent longest.
const Header = "Watershed-Age"

// Freshness collects how old the copies are that a response is made from.
type Freshness struct {
	// heard is when the server was last heard from. Of several clusters it is the time of
	// the one that has been silent longest.
	heard time.Time
	// stale counts the copies that are not current, and warnings name the first of them.
	stale    int
	warnings []string
	// unsynced are the clusters that have not synced.
	unsynced []string
}

// Add adds the copy of a cluster, which has synced. The cluster is "" if there is only
// one.
func (f *Freshness) Add(cluster string, s reflector.Status) {
	heard := s.Heard
	if heard.IsZero() {
		heard = s.StaleSince // the state is that of an earlier process
	}
	if !heard.IsZero() && (f.heard.IsZero() || heard.Before(f.heard)) {
		f.heard = heard
	}
	if IsCurrent(s) {
		return
	}
	f.stale++
	if f.stale <= warning.Limit {
		f.warnings = append(f.warnings, staleWarning(cluster, s))
	}
}

// AddUnsynced adds a cluster that is left out because it has not synced.
func (f *Freshness) AddUnsynced(cluster string) { f.unsynced = append(f.unsynced, cluster) }

// Write adds the headers. They have at most [warning.Limit] warnings about stale copies, and
// two that count or name the other clusters.
func (f *Freshness) Write(h http.Header) {
	if !f.heard.IsZero() {
		h.Set(Header, time.Since(f.heard).Round(time.Millisecond).String())
	}
	warning.Add(h, f.warnings...)
	if more := f.stale - len(f.warnings); more > 0 {
		warning.Add(h, fmt.Sprintf("%d more clusters are stale", more))
	}
	if len(f.unsynced) > 0 {
		warning.Add(h, "not synced yet, and left out: cluster "+warning.Names(f.unsynced))
	}
}

// IsCurrent reports whether a copy that has synced is current, as far as that is known. It
// is between its first list and the watch that follows. Before the first watch StaleSince
// is zero, even if the watch has failed.
func IsCurrent(s reflector.Status) bool {
	return s.State == reflector.Watching || s.State == reflector.Listing && s.StaleSince.IsZero()
}

// staleWarning returns what clients show about a copy that is not current.
func staleWarning(cluster string, s reflector.Status) string {
	text := "the copy"
	if cluster != "" {
		text = "cluster " + warning.Shorten(cluster, warning.MaxName)
	}
	if s.StaleSince.IsZero() {
		text += " is not followed"
	} else {
		text += fmt.Sprintf(" has been stale for %s", time.Since(s.StaleSince).Round(time.Second))
	}
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}
