// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/internal/timer"
)

// ErrUnreachable is returned by WaitForSync if the cluster cannot be reached.
var ErrUnreachable = errors.New("cluster cannot be reached")

// WaitForSync waits until all clusters are known, see [Fleet.Known], and each of them has
// synced or has been found to be unreachable: see [Member.WaitForSync]. The error is that
// of ctx.
func (f *Fleet) WaitForSync(ctx context.Context) error {
	if err := f.awaitKnown(ctx); err != nil {
		return fmt.Errorf("wait for the directory: %w", err)
	}
	for _, m := range f.Members() {
		if err := m.WaitForSync(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// sourcesPoll is how often WaitForSync asks a directory of several sources whether each of them
// has reported, once some have. It returns that from memory.
const sourcesPoll = 20 * time.Millisecond

// awaitKnown waits until all clusters are known.
func (f *Fleet) awaitKnown(ctx context.Context) error {
	for changed := f.changed.Wait(); !f.isAdmitted(); changed = f.changed.Wait() {
		if err := awaitSync(ctx, changed, nil); err != nil {
			return err
		}
	}
	for !f.Known() {
		if err := timer.Sleep(ctx, sourcesPoll); err != nil {
			return err
		}
	}
	return nil
}

// WaitForSync waits until every resource that the cluster serves has been read once, or
// reading it was refused or has failed three times. One bad type does not block the
// others, and is listed in [Status.Failing]. The error is that of ctx, or
// [ErrUnreachable] if the first attempt to reach the cluster failed; the member keeps
// retrying.
func (m *Member) WaitForSync(ctx context.Context) error {
	for {
		changed := m.changed.Wait()
		s, unsynced := m.syncing()
		switch {
		case s.State == Live, s.State == Stale:
			return nil
		case s.State == Gone, s.State == Connecting && s.Err != nil:
			return fmt.Errorf("wait for %s: %w: %w", m.Name(), ErrUnreachable, cmp.Or(s.Err, errors.New("it has left")))
		}
		if err := awaitSync(ctx, changed, unsynced); err != nil {
			return fmt.Errorf("wait for %s: %w", m.Name(), err)
		}
	}
}

// syncing returns the status, and the channels that are closed when the resources have synced
// that WaitForSync still waits for.
func (m *Member) syncing() (Status, []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all, unsynced := m.mirrors.Unsynced()
	return m.statusLocked(all), unsynced
}

// awaitSync waits until all resources have synced, or something else in the status has changed.
// It does not look at the status meanwhile, which has a cost for each resource.
func awaitSync(ctx context.Context, changed <-chan struct{}, unsynced []<-chan struct{}) error {
	for _, synced := range unsynced {
		select {
		case <-synced:
		case <-changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(unsynced) > 0 {
		return nil
	}
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
