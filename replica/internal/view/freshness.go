// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"fmt"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Freshness collects how old the copies are that a response is made from.
type Freshness struct {
	// Heard is when the server was last heard from. Of several clusters it is the time of
	// the one that has been silent longest.
	Heard time.Time
	// stale counts the clusters that are not current, and warnings name the first of them.
	stale    int
	warnings []string
	// unsynced are the clusters that have not synced.
	unsynced []string
}

// FreshnessOf returns the freshness of the copy of one cluster.
func FreshnessOf(m *fleet.Member, feed *fleet.Feed) *Freshness {
	var f Freshness
	f.add(m, feed.Connection())
	return &f
}

// Add adds the copy of one of several clusters.
func (f *Freshness) Add(m *fleet.Member, feed *fleet.Feed) {
	if _, err := feed.Now(); err != nil {
		f.unsynced = append(f.unsynced, m.Name())
		return
	}
	f.add(m, feed.Connection())
}

func (f *Freshness) add(m *fleet.Member, s reflector.Status) {
	if !s.Heard.IsZero() && (f.Heard.IsZero() || s.Heard.Before(f.Heard)) {
		f.Heard = s.Heard
	}
	if s.StaleSince.IsZero() || s.State == reflector.Watching {
		return
	}
	f.stale++
	if f.stale <= status.MaxWarnings {
		f.warnings = append(f.warnings, staleWarning(m.Name(), s))
	}
}

// Warnings returns the warnings about clusters that are stale or have not synced.
func (f *Freshness) Warnings() []string {
	all := f.warnings
	if more := f.stale - len(f.warnings); more > 0 {
		all = append(all, fmt.Sprintf("%d more clusters are stale", more))
	}
	if len(f.unsynced) > 0 {
		all = append(all, "not synced yet, and left out: cluster "+status.Names(f.unsynced))
	}
	return all
}

// staleWarning returns what kubectl prints about a cluster that is not current.
func staleWarning(cluster string, s reflector.Status) string {
	text := fmt.Sprintf("cluster %s has been stale for %s", status.Shorten(cluster, status.MaxName), time.Since(s.StaleSince).Round(time.Second))
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}
