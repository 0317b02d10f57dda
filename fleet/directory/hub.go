// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// hubPart is one informer of a directory that reads from a hub.
type hubPart struct {
	run    func(context.Context) error
	synced <-chan struct{}
	// err returns why the objects cannot be read at present, nil if they can be.
	err func() error
	// parked reports whether the hub does not have the resource.
	parked func() bool
	// follow calls changed after every change until its context ends.
	follow func(ctx context.Context, changed func())
}

func hubPartOf[T any](i *watershed.Informer[T]) hubPart {
	return hubPart{
		run:    i.Run,
		synced: i.Synced(),
		err: func() error {
			is := i.Status()
			if is.Synced && is.Reflector.StaleSince.IsZero() || is.Reflector.State == reflector.Parked {
				return nil
			}
			return is.Reflector.Err
		},
		parked: func() bool { return i.Status().Reflector.State == reflector.Parked },
		follow: func(ctx context.Context, changed func()) {
			for range i.Watch(ctx) { // objects are not decoded here
				changed()
			}
		},
	}
}

// parkedPoll is how often an informer that has not synced is checked, in memory, for
// whether the hub does not have its resource.
const parkedPoll = 100 * time.Millisecond

// hubState has the informers of a directory that is followed.
type hubState struct{ parts atomic.Pointer[[]hubPart] }

// Err returns why the clusters cannot be read at present, nil if they can be.
func (s *hubState) Err() error {
	parts := s.parts.Load()
	if parts == nil {
		return nil
	}
	for _, p := range *parts {
		if err := p.err(); err != nil {
			return err
		}
	}
	return nil
}

// follow runs informers until ctx ends, then it closes the idle connections to the hub. It calls changed once every
// informer has synced or its resource is known to be absent, and again after changes. While the hub
// cannot be reached, the informers keep their objects.
func (s *hubState) follow(ctx context.Context, hub *kube.Cluster, changed func(), parts ...hubPart) error {
	defer hub.CloseIdleConnections()
	s.parts.Store(&parts)
	ctx, cancel := context.WithCancel(ctx)
	var children sync.WaitGroup
	defer children.Wait()
	defer cancel()

	failed := make(chan error, len(parts))
	changes := make(chan struct{}, 1)
	for _, p := range parts {
		children.Go(func() {
			if err := p.run(ctx); err != nil {
				failed <- err
			}
		})
		children.Go(func() {
			p.follow(ctx, func() {
				select {
				case changes <- struct{}{}:
				default:
				}
			})
		})
	}
	for _, p := range parts {
		if err := p.known(ctx, failed); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	for {
		changed()
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-changes:
		}
	}
}

// known waits until the informer has synced or its resource is known to be absent.
func (p hubPart) known(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(parkedPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-p.synced:
			return nil
		case <-tick.C:
			if p.parked() {
				return nil
			}
		}
	}
}

// unlessEnded returns nil if err is the error of the ended context.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// hubName returns the name of a hub for log lines and errors.
func hubName(hub *kube.Cluster) string {
	if hub == nil {
		return "no hub"
	}
	return hub.Name()
}
