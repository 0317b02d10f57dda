// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/wire"
)

// Tamper changes the copy of a resource behind the back of its source. Only tests can.
func (m *Member) Tamper(r schema.GroupResource, deltas ...delta.Delta[*wire.Object]) {
	m.mirrors.Mirror(r).Informer.Write(deltas...)
}

// Copied returns the newest whole state of the copy of a resource by key, and its version.
func (m *Member) Copied(r schema.GroupResource) (map[string]*wire.Object, uint64) {
	x, err := m.mirrors.Copy(r)
	if err != nil {
		panic(err)
	}
	all, now := map[string]*wire.Object{}, x.Newest()
	for key, o := range now.Raw() {
		all[key] = o
	}
	return all, now.Version()
}

// Resources returns the resources that are mirrored in any cluster, sorted by name.
func (f *Fleet) Resources() []schema.GroupResource {
	var all []schema.GroupResource
	for _, c := range f.catalog.All() {
		if len(c.Newest(nil).Clusters) > 0 {
			all = append(all, c.Resource())
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// TakeTurn takes a turn to list from the member's server.
func (m *Member) TakeTurn(ctx context.Context) (leave func(), err error) {
	t, err := m.server.TakeTurn(ctx)
	if err != nil {
		return nil, err
	}
	return t.Leave, nil
}

// Returned returns the UID that the cluster has returned over the configuration in use.
func (m *Member) Returned() string {
	uid, _ := m.server.Known.Returned()
	return uid
}

// DiscoverSoon shortens the time after a change in which discoveries follow each other. The caller
// calls restore after all fleets of the test have ended.
func DiscoverSoon() (restore func()) {
	was := discoverAfter
	discoverAfter = was[:2]
	return func() { discoverAfter = was }
}

// Remember stores the note of the cluster.
func (m *Member) Remember() { m.remember() }

// RecallWhile makes the last state readable while a mirror that was dropped receives an error.
func (m *Member) RecallWhile(ctx context.Context, dropped func() error) {
	m.mu.Lock()
	m.mirrors.Go(func() { m.server.DelayListsAfter(dropped()) })
	m.mu.Unlock()
	m.recall(ctx)
}

// ConnectionOf returns the digest of a configuration.
var ConnectionOf = upstream.Connection
