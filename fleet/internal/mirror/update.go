// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Update records the resources that the cluster serves, and makes the mirrors match them until ctx
// ends. Mirrors of resources that are missing from discovery stay as they are. "left" is the error
// about resources that are too many, and err the last one about a mirror that could not be made. The
// caller holds the member's mu.
func (s *Set) Update(
	ctx context.Context, scope selection.Scope, served []kube.Resource, missing error,
) (left, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setListedLocked(served)
	wanted, hidden := s.settings.Selection().Wanted(scope, served)
	left = s.limitWantedLocked(wanted)
	defer s.changed()
	for at, x := range s.mirrors {
		if _, ok := wanted[at]; !ok && !unknown(at, missing) && !s.definedLocked(at) {
			s.server.Logger().Info("resource is no longer served", "resource", at.String())
			s.endLocked(at, x)
			s.removals.Add(at)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(wanted), selection.First) {
		if failed := s.matchLocked(ctx, scope, wanted[at], !hidden[at]); failed != nil {
			err = failed
		}
	}
	return left, err
}

// setListedLocked records the resources of the cluster.
func (s *Set) setListedLocked(served []kube.Resource) {
	s.listed = served
	s.served = make(map[schema.GroupResource]struct{}, len(served))
	for _, r := range served {
		s.served[r.GroupResource()] = struct{}{}
	}
}

// matchLocked makes the mirror of a resource match how the resource is served now.
func (s *Set) matchLocked(ctx context.Context, scope selection.Scope, r kube.Resource, selected bool) error {
	at := r.GroupResource()
	if x := s.next[at]; x != nil && !x.Same(r, s.asJSON[at], selected) {
		delete(s.next, at)
		x.stop(false)
	}
	now := s.mirrors[at]
	if now != nil && now.Same(r, s.asJSON[at], selected) || s.next[at] != nil {
		return nil
	}
	x, err := s.newMirrorLocked(scope, r, selected)
	if err != nil {
		return err
	}
	if now == nil {
		s.removals.Forget(at)
		s.mirrors[at] = x
	} else {
		if r.Version != now.Resource.Version {
			s.server.Logger().Info("resource is served in another way, mirroring it anew",
				"resource", at.String(), "version", r.Version, "was", now.Resource.Version)
		}
		s.next[at] = x
	}
	s.startLocked(ctx, x)
	return nil
}

// servedPerMirror is how many resources a cluster may serve for each that it may have
// mirrored: a resource can have several versions, and not every one can be watched.
const servedPerMirror = 8

// LimitServed returns as many of the served resources as a cluster may have, and the error
// about those that discovery could not read and those that are left out.
func (s *Set) LimitServed(served []kube.Resource, missing error) ([]kube.Resource, error) {
	most := s.settings.Resources()
	if most < 0 || len(served)/servedPerMirror < most {
		return served, missing
	}
	most *= servedPerMirror
	return slices.Clone(served[:most]), errors.Join(missing, fmt.Errorf(
		"%w: the cluster serves %d resources, and all after the first %d are ignored", quota.ErrLimit, len(served),
		most))
}

// limitWantedLocked removes resources from those to mirror if they are too many, and
// returns an error in that case. Those that are mirrored already stay, then come built-in
// ones.
func (s *Set) limitWantedLocked(wanted map[schema.GroupResource]kube.Resource) error {
	most, n := s.settings.Resources(), len(wanted)
	if most < 0 || n <= most {
		return nil
	}
	class := func(at schema.GroupResource) int {
		_, builtin := kube.KindOf(wanted[at].GroupVersionResource)
		switch {
		case s.mirrors[at] != nil:
			return 0
		case builtin:
			return 1
		}
		return 2
	}
	all := slices.SortedFunc(maps.Keys(wanted), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(class(a), class(b)), selection.First(a, b))
	})
	for _, at := range all[most:] {
		delete(wanted, at)
	}
	return fmt.Errorf("%w: the cluster has %d resources to mirror, and %d are mirrored: %s is one of the others",
		quota.ErrLimit, n, most, all[most])
}

// newMirrorLocked returns a mirror of a resource. Only selected resources can be read.
func (s *Set) newMirrorLocked(scope selection.Scope, r kube.Resource, selected bool) (x *Mirror, err error) {
	at := r.GroupResource()
	query := kube.Query{Resource: r.GroupVersionResource, MetadataOnly: true}
	if selected {
		query = selection.Query(scope, r)
	}
	query.JSON = s.asJSON[at]
	unknownFields := func(o *wire.Object) { s.useJSON(at, o) }
	// The connection is not that of the discovery, which may have been replaced.
	applied := func(state collection.State, changes []store.Change[*wire.Object], whole bool) {
		x.Source.Complete()
		s.applied(x, state, changes)
		x.Feed.Apply(state, changes, whole)
		x.reached(state, whole)
		if s.settings.Trace != nil {
			stored(s.settings.Trace, x, changes)
		}
	}
	var plan func(context.Context) *facets.Plan
	if selected {
		plan = s.plan(r)
	}
	x, err = newMirror(s.server, s.settings, r, query, plan, unknownFields, applied)
	if err != nil || !selected {
		return x, err
	}
	x.useJSON = func() error { return s.continueJSON(x) }
	if s.settings.History() > 0 {
		x.Feed = history.NewWriter(&x.Resource, x.Informer.Connection, s.settings.Window)
		x.Feed.Succeed(s.before(at))
	}
	x.Collection = s.catalog.Collection(at)
	x.Collection.Introduce(x.Cluster, x.Informer)
	return x, nil
}

// definedLocked reports whether a resource has a definition. Then it is served, or will
// be again: a server that has just started may leave it out of its discovery.
func (s *Set) definedLocked(at schema.GroupResource) bool {
	x := s.mirrors[selection.Definitions]
	if x == nil {
		return false
	}
	_, ok := x.Informer.Get(at.String())
	return ok
}

// unknown reports whether discovery could not determine whether a resource is served.
func unknown(r schema.GroupResource, missing error) bool {
	return slices.ContainsFunc(health.Split(missing), func(err error) bool {
		var g *kube.GroupError
		return !errors.As(err, &g) || g.GroupVersion.Group == r.Group
	})
}

// startLocked runs a mirror until ctx ends or the mirror is stopped.
func (s *Set) startLocked(ctx context.Context, x *Mirror) {
	ctx, x.End = context.WithCancel(ctx)
	s.Go(func() { x.run(ctx, s.server.Logger()) })
}

// Go runs a function, for which Wait waits. It must not be called for the first time while Wait runs.
func (s *Set) Go(run func()) { s.runs.Go(run) }

// Wait waits until all mirrors that have been started have ended.
func (s *Set) Wait() { s.runs.Wait() }

// WaitIfEmpty waits until mirrors that were dropped have ended, if no other is in the set: the files of
// a resource can be open once only.
func (s *Set) WaitIfEmpty() {
	s.mu.Lock()
	empty := len(s.mirrors) == 0
	s.mu.Unlock()
	if empty {
		s.runs.Wait()
	}
}

// Use makes all mirrors use another connection, and returns the last error.
func (s *Set) Use(cluster *kube.Cluster) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range slices.Concat(slices.Collect(maps.Values(s.mirrors)), slices.Collect(maps.Values(s.next))) {
		if failed := x.Source.Use(cluster); failed != nil {
			err = failed
		}
		x.Informer.Retry()
	}
	return err
}

// Retune ends the mirrors of resources that are not selected any more, and those that may be read with
// changed limits.
func (s *Set) Retune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	chosen := s.settings.Selection()
	for at, x := range s.mirrors {
		switch is := x.Informer.Status(); {
		case x.Collection != nil && !chosen.Has(at):
			s.server.Logger().Info("resource is no longer selected", "resource", at.String())
			s.endLocked(at, x)
		case !is.Synced && errors.Is(is.Reflector.Err, quota.ErrLimit):
			s.endLocked(at, x) // the next discovery starts it again
		}
	}
}

// endLocked ends a mirror without a successor, and the mirror that was to replace it.
func (s *Set) endLocked(at schema.GroupResource, x *Mirror) {
	delete(s.mirrors, at)
	s.changed()
	x.stop(false)
	if next := s.next[at]; next != nil {
		delete(s.next, at)
		next.stop(false)
	}
}

// End ends all mirrors, and removes their objects from the collections. It does not wait for them.
func (s *Set) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, x := range s.mirrors {
		s.endLocked(at, x)
	}
}

// Drop ends all mirrors like End, and forgets the resources of the cluster.
func (s *Set) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, x := range s.mirrors {
		s.endLocked(at, x)
	}
	s.listed, s.served = nil, nil
}

// Retire ends all mirrors. Their objects stay readable until others replace them.
func (s *Set) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.next {
		x.stop(false)
	}
	clear(s.next)
	for _, x := range s.mirrors {
		x.stop(true)
	}
}
