// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/wire"
)

// Tamper changes the copy of a resource behind the back of its source. Only tests can.
func (m *Member) Tamper(r schema.GroupResource, deltas ...delta.Delta[*wire.Object]) {
	m.mu.Lock()
	x := m.mirrors[r]
	m.mu.Unlock()
	x.informer.Write(deltas...)
}

// Copied returns the newest whole state of the copy of a resource by key, and its version.
func (m *Member) Copied(r schema.GroupResource) (map[string]*wire.Object, uint64) {
	m.mu.Lock()
	x := m.mirrors[r]
	m.mu.Unlock()
	all, now := map[string]*wire.Object{}, *x.whole.Load()
	for key, o := range now.Raw() {
		all[key] = o
	}
	return all, now.Version()
}

// TakeTurn takes a turn to list from the member's server.
func (m *Member) TakeTurn(ctx context.Context) (leave func(), err error) {
	t, err := m.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	return t.leave, nil
}
