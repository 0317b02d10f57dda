// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
)

// hubPart is one of the informers on a hub that a directory is made from.
type hubPart struct {
	run    func(context.Context) error
	synced <-chan struct{}
	// parked reports whether the hub is known not to have the resource.
	parked func() bool
	// follow calls changed for every change until its context ends.
	follow func(ctx context.Context, changed func())
}

func hubPartOf[T any](i *watershed.Informer[T]) hubPart {
	return hubPart{
		run:    i.Run,
		synced: i.Synced(),
		parked: func() bool { return i.Status().Reflector.State == reflector.Parked },
		follow: func(ctx context.Context, changed func()) {
			for range i.Watch(ctx) { // decodes nothing
				changed()
			}
		},
	}
}

// parkedEvery is how often an informer that has not synced is asked, in memory,
// whether that is because the hub does not have its resource.
const parkedEvery = 100 * time.Millisecond

// followHub runs informers until ctx ends, and calls changed when what there is is
// known, and again after changes. A hub that does not answer changes nothing: the
// informers keep what they have.
func followHub(ctx context.Context, changed func(), parts ...hubPart) error {
	ctx, cancel := context.WithCancel(ctx)
	var children sync.WaitGroup
	defer children.Wait()
	defer cancel()

	failed := make(chan error, len(parts))
	news := make(chan struct{}, 1)
	for _, p := range parts {
		children.Go(func() {
			if err := p.run(ctx); err != nil {
				failed <- err
			}
		})
		children.Go(func() {
			p.follow(ctx, func() {
				select {
				case news <- struct{}{}:
				default:
				}
			})
		})
	}
	for _, p := range parts {
		if err := p.known(ctx, failed); err != nil {
			return ended(ctx, err)
		}
	}
	for {
		changed()
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-news:
		}
	}
}

// known waits until the part has all there is, or there is nothing to have.
func (p hubPart) known(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(parkedEvery)
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

// ended is nil for the end that the caller asked for.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// secretEntries are the kubeconfigs in Secrets, each of which is parsed once.
type secretEntries struct{ last, now map[string]secretEntry }

type secretEntry struct {
	version string
	entry   Entry
}

// of is the entry of the kubeconfig under a key of a Secret, without a name. Its
// error does not say which Secret it is.
func (s *secretEntries) of(secret *corev1.Secret, key string) Entry {
	if s.now == nil {
		s.now = make(map[string]secretEntry, len(s.last))
	}
	id, version := secret.Namespace+"/"+secret.Name, string(secret.UID)+" "+secret.ResourceVersion
	e, ok := s.last[id]
	if !ok || e.version != version {
		cfg, err := secretConfig(secret.Data[key])
		e = secretEntry{version, entryOf("", cfg, err)}
	}
	s.now[id] = e
	return e.entry
}

// done ends a round: what was not asked for in it is forgotten.
func (s *secretEntries) done() { s.last, s.now = s.now, nil }
