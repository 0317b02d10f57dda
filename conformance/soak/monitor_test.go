// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// hangs is how long an informer of objects that change all the time may receive nothing.
// client-go waits up to a minute between two attempts.
const hangs = 100 * time.Second

// monitor watches informers for progress.
type monitor struct {
	followers *followers

	mu     sync.Mutex
	moved  map[*follower]time.Time
	seen   map[*follower]uint64
	faults []string
}

func newMonitor(fs *followers) *monitor {
	return &monitor{followers: fs, moved: map[*follower]time.Time{}, seen: map[*follower]uint64{}}
}

// run checks until ctx ends.
func (m *monitor) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m.look(now)
		}
	}
}

func (m *monitor) look(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.followers.all {
		version, since := f.version(), m.moved[f]
		switch {
		case version != m.seen[f] || since.IsZero():
			if version < m.seen[f] {
				m.faults = append(m.faults, fmt.Sprintf("%s went back from %d to %d", f.name, m.seen[f], version))
			}
			m.seen[f], m.moved[f] = version, now
		case now.Sub(since) > hangs:
			m.faults = append(m.faults,
				fmt.Sprintf("%s has been at %d for %s", f.name, version, now.Sub(since).Round(time.Second)))
			m.moved[f] = now // report it once
		}
	}
}

// forgive excludes the time during which the subject was down.
func (m *monitor) forgive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.moved)
}

func (m *monitor) report() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.faults)
}

// inStep waits until every informer has reached the current state of etcd, and returns
// how long each took since a time, the shortest first.
func (m *monitor) inStep(ctx context.Context, c *kubetest.Cluster, since time.Time) ([]time.Duration, error) {
	waiting := map[*follower]uint64{}
	for _, f := range m.followers.all {
		truth, err := c.Truth(ctx, f.resource.GroupResource())
		if err != nil {
			return nil, err
		}
		// The version of a list may be that of other objects, which a watch reaches only
		// with a bookmark.
		waiting[f] = 0
		for _, o := range f.want(truth) {
			waiting[f] = max(waiting[f], uint64(o.Revision))
		}
	}
	var took []time.Duration
	err := expect.Until(ctx, func() error {
		var behind []string
		for f, version := range waiting {
			if at := f.version(); !f.informer.HasSynced() || at < version {
				behind = append(behind, fmt.Sprintf("%s at %d of %d", f.name, at, version))
				continue
			}
			delete(waiting, f)
			took = append(took, time.Since(since))
		}
		if len(behind) > 0 {
			return fmt.Errorf("not in step: %s", strings.Join(behind, "; "))
		}
		return nil
	})
	return took, err
}
