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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/health"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

var (
	// ErrNotMirrored means that a cluster does not mirror a resource.
	ErrNotMirrored = errors.New("resource is not mirrored")
	// ErrNotReady means that a resource has not synced yet.
	ErrNotReady = history.ErrNotReady
)

// Set has the mirrors of one member, and the resources that its cluster serves. All methods are safe
// for concurrent use.
type Set struct {
	server   *upstream.Server
	settings *Settings
	catalog  *collection.Catalog
	// changed is called when the status of the member may have changed. before returns the feed of
	// a resource of the member that this one replaces, nil if there is none.
	changed func()
	before  func(schema.GroupResource) *history.Feed
	runs    sync.WaitGroup

	// mu guards the fields below, and that a mirror is in the maps and uses the connection of the
	// server. The member's mu is taken before it.
	mu sync.Mutex
	// mirrors serve readers. next are their replacements, still syncing.
	mirrors, next map[schema.GroupResource]*Mirror
	// asJSON has the resources with objects that have fields which their Go types do not
	// have. They are mirrored as JSON.
	asJSON map[schema.GroupResource]bool
	// listed has the resources of the last discovery, and served has their names. They are
	// replaced, not modified. Listed is nil as long as the resources of the cluster are not known.
	listed []kube.Resource
	served map[schema.GroupResource]struct{}
	// removals are resources that were mirrored and are not served any more.
	removals health.Removals
}

// NewSet returns a set without mirrors. The function "changed" is called when the status may have
// changed, and must not wait for the set. The function "before" returns the feed of a resource of the
// member that this one replaces, nil if there is none; Update calls it.
func NewSet(
	to *upstream.Server, s *Settings, c *collection.Catalog,
	changed func(), before func(schema.GroupResource) *history.Feed,
) *Set {
	return &Set{
		server: to, settings: s, catalog: c, changed: changed, before: before,
		mirrors: map[schema.GroupResource]*Mirror{}, next: map[schema.GroupResource]*Mirror{},
		asJSON: map[schema.GroupResource]bool{},
	}
}

// Mirror returns the mirror of a resource that serves readers, nil if there is none.
func (s *Set) Mirror(r schema.GroupResource) *Mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirrors[r]
}

// Feed returns the feed of a resource, nil if it has none.
func (s *Set) Feed(r schema.GroupResource) *history.Feed {
	if x := s.Mirror(r); x != nil && x.Feed != nil {
		return x.Feed.Feed()
	}
	return nil
}

// Between returns the changes of a part of a resource after a version, up to and including another
// one, from the API server, with objects as the mirror keeps them. See [upstream.Source.Between].
func (s *Set) Between(
	ctx context.Context, r schema.GroupResource, part upstream.Part, after, until uint64,
) ([]upstream.Event, error) {
	x := s.Mirror(r)
	if x == nil {
		return nil, ErrNotMirrored
	}
	all, err := x.Source.Between(ctx, part, after, until)
	for i := range all {
		if err == nil {
			all[i].Object, err = x.Informer.Engine().Transform(all[i].Object)
		}
	}
	return all, err
}

// FeedLogs returns the logs of the feeds.
func (s *Set) FeedLogs() []*fanout.Log[*wire.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*fanout.Log[*wire.Object]
	for _, x := range s.mirrors {
		if x.Feed != nil {
			all = append(all, x.Feed.Log())
		}
	}
	return all
}

// Listed returns the resources of the last discovery, nil if the resources of the cluster are not
// known. The caller must not modify them.
func (s *Set) Listed() []kube.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// Served returns the resources that have a feed, in the order of the server's last
// discovery and as described there.
func (s *Set) Served() []kube.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]kube.Resource, 0, len(s.mirrors))
	for _, r := range s.listed {
		if x := s.mirrors[r.GroupResource()]; x != nil && x.Feed != nil && x.Resource.Version == r.Version {
			all = append(all, r)
		}
	}
	return all
}

// JSON returns the resources that are read as JSON.
func (s *Set) JSON() []schema.GroupResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.asJSON), selection.First)
}

// Removals returns the resources that the cluster has ceased to serve lately.
func (s *Set) Removals(now time.Time) []health.Removal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removals.Recent(now)
}

// Statuses returns the statuses of the mirrors, sorted by name.
func (s *Set) Statuses() []health.ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusesLocked()
}

func (s *Set) statusesLocked() []health.ResourceStatus {
	// Statuses are large: sorting the mirrors is cheaper.
	mirrors := slices.SortedFunc(maps.Values(s.mirrors), func(a, b *Mirror) int {
		one, other := &a.Resource, &b.Resource
		return cmp.Or(cmp.Compare(one.Resource, other.Resource), cmp.Compare(one.Group, other.Group))
	})
	all := make([]health.ResourceStatus, len(mirrors))
	for i, x := range mirrors {
		r := &all[i]
		r.Resource, r.Verified, r.Status = x.Resource.GroupVersionResource, x.verified.Load(), x.Informer.Status()
		r.Expected = r.Objects
		if !r.Synced {
			r.Expected = max(r.Objects, x.Source.Expected())
		}
	}
	return all
}

// Unsynced returns the statuses, and the channels that are closed when the resources have synced that
// WaitForSync still waits for.
func (s *Set) Unsynced() (all []health.ResourceStatus, unsynced []<-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = s.statusesLocked()
	for i := range all {
		if r := &all[i]; !r.Synced && !health.IsGivenUp(r) {
			unsynced = append(unsynced, s.mirrors[r.Resource.GroupResource()].Informer.Synced())
		}
	}
	return all, unsynced
}

// Memory returns about how many bytes the objects and the logs of the informers take.
func (s *Set) Memory() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := int64(0)
	for _, x := range s.mirrors {
		is := x.Informer.Stats()
		sum += is.ObjectBytes + is.KeyBytes + is.IndexBytes + is.FacetBytes + is.LogBytes
	}
	return sum
}

// Diverged returns how many resources differ from the server, as far as it is known.
func (s *Set) Diverged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range s.mirrors {
		if x.verified.Load().Diverges() {
			n++
		}
	}
	return n
}

// Copy returns the copy of a resource that has synced. The error is ErrNotMirrored or ErrNotReady.
func (s *Set) Copy(r schema.GroupResource) (verify.Copy, error) {
	x, err := s.verifiable(r)
	if err != nil {
		return nil, err
	}
	return verified{x, s}, nil
}

// verifiable returns the mirror of a resource that has synced.
func (s *Set) verifiable(r schema.GroupResource) (*Mirror, error) {
	x := s.Mirror(r)
	switch {
	case x == nil || x.Collection == nil:
		return nil, ErrNotMirrored
	case x.whole.Load() == nil:
		if err := x.Informer.Connection().Err; err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
		}
		return nil, ErrNotReady
	}
	return x, nil
}

// Mirrored returns the resources that are selected, sorted by name, or those of them that have synced.
func (s *Set) Mirrored(synced bool) []schema.GroupResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []schema.GroupResource
	for at, x := range s.mirrors {
		if x.Collection != nil && (!synced || x.whole.Load() != nil) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, selection.First)
	return all
}

// Lags reports whether discovery lacks some of the types that are defined: it is behind,
// or one of them cannot be served.
func (s *Set) Lags() bool {
	x := s.Mirror(selection.Definitions)
	return x != nil && s.lags(x.Informer.Snapshot())
}

// lags is Lags for the definitions of a state.
func (s *Set) lags(defined collection.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range defined.Raw() {
		_, ok := s.served[schema.ParseGroupResource(key)]
		if !ok && o.GroupVersionKind().Group == selection.Definitions.Group {
			return true
		}
	}
	return false
}

// applied handles a batch that a mirror has read. The mirror's informer waits for it. Readers of
// the collection see the parts of a relist too.
func (s *Set) applied(x *Mirror, state collection.State, changes []store.Change[*wire.Object]) {
	at := x.Resource.GroupResource()
	if (at == selection.Definitions || at == selection.APIServices) && (len(changes) > 0 || !x.seen && s.lags(state)) {
		s.server.RequestDiscovery()
	}
	x.seen = true
	switch {
	case x.Collection == nil:
	case x.joined:
		x.Collection.Apply(x.Informer, state, changes)
	default:
		x.joined = true
		s.Join(x, state)
	}
}

// Join makes the state of a mirror that has synced the cluster's, if it is still wanted,
// and ends the mirror that it replaces.
func (s *Set) Join(x *Mirror, state collection.State) {
	at := x.Resource.GroupResource()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors[at] != x && s.next[at] != x {
		return // it was stopped
	}
	x.Collection.Apply(x.Informer, state, nil)
	if s.next[at] == x {
		s.mirrors[at].stop(true)
		delete(s.next, at)
		s.mirrors[at] = x
		s.changed()
	}
}

// useJSON mirrors a resource as JSON from now on, because of an object with unknown
// fields.
func (s *Set) useJSON(r schema.GroupResource, o *wire.Object) {
	s.mu.Lock()
	known := s.asJSON[r]
	s.asJSON[r] = true
	s.mu.Unlock()
	if !known {
		s.server.Logger().Warn("objects have fields that this program does not know, reading the resource as JSON",
			"resource", r.String(), "object", o.String())
		s.server.RequestDiscovery()
	}
}

// continueJSON makes a mirror that has not sent a request yet read JSON, because its resource
// is stored as JSON.
func (s *Set) continueJSON(x *Mirror) error {
	at := x.Resource.GroupResource()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := x.Source.UseJSON(); err != nil {
		return err
	}
	s.asJSON[at] = true
	s.server.Logger().Info("stored objects have fields that this program does not know, reading the resource as JSON",
		"resource", at.String())
	return nil
}
