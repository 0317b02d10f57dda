// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
)

// ErrUnreachable is returned by WaitForSync if the cluster cannot be reached.
var ErrUnreachable = errors.New("cluster cannot be reached")

// State is the stage of a member's life.
type State uint8

const (
	// Connecting means that the cluster's resources have not been discovered yet. Its last
	// state may be readable, see [Options.LastState].
	Connecting State = iota
	// Syncing means that some resources are being listed for the first time.
	Syncing
	// Live means that all resources are current.
	Live
	// Stale means that some resources are not current. Reads return their last known
	// state.
	Stale
	// Gone means that the member has left the fleet.
	Gone
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Connecting:
		return "connecting"
	case Syncing:
		return "syncing"
	case Live:
		return "live"
	case Stale:
		return "stale"
	default:
		return "gone"
	}
}

// Status is the status of a member.
type Status struct {
	State State
	// Since is when the member ceased to be current, if it is Stale, and otherwise when
	// it joined or left.
	Since time.Time
	// Err is why the member is Connecting or Stale, or which part of its discovery is
	// missing. It includes an error of the directory for as long as the directory reports
	// it, even if the cluster is Live with its previous credentials.
	Err error
	// Synced is how many of Resources have finished their first list.
	Synced, Resources int
	// Objects is how many objects have been read, of the Expected ones. Expected sums the
	// counts that the server returned before each first list, and the objects of the
	// resources that have synced.
	Objects, Expected int
	// Queued is how many changes were received and are not applied yet.
	Queued int
	// Heard is when the cluster last sent something, and Quiet is the last time the most silent
	// resource sent anything. A healthy watch is silent for at most a minute.
	Heard, Quiet time.Time
	// Probe is the result of the last probe of the API server, which follows discovery.
	Probe Probe
	// Interruptions is how often within ten minutes the copy ceased to be current and
	// became current again. Interrupted is the time of the first of them.
	Interruptions int
	Interrupted   time.Time
	// Removals are the resources that the cluster has ceased to serve within the last hour.
	Removals []Removal
	// Shadowed names the sources that have another cluster of this name, which is left out.
	Shadowed []string
	// Predecessor is the identity of the cluster that had the member's name until the
	// member joined. It is zero if none had, or an hour has passed.
	Predecessor Identity
	// Joined is when the member joined.
	Joined time.Time
	// Identity is the cluster's. Without a UID, another cluster at the same endpoint is
	// not detected.
	Identity Identity
	// Unstored is why the objects of the cluster are not stored, although [Options.Disk] is
	// set: the UID of its Identity was not known at the first discovery.
	Unstored error
	// Scope is the part of the cluster that is mirrored.
	Scope Scope
	// JSON has the resources that are read as JSON, because objects have fields that the
	// Go types of this program do not have.
	JSON []schema.GroupResource
	// Failing has the resources that are not current or could not be read, sorted by
	// name.
	Failing []ResourceStatus
	// Diverged has the resources whose copy differed from the server when it was last
	// verified, and was not repaired, sorted by name. See [Member.Verify].
	Diverged []ResourceStatus
}

// String returns the status on one line, for people: it may change.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s since %s, %d of %d resources synced, %d objects", s.State, s.Since.Format(time.RFC3339), s.Synced, s.Resources, s.Objects)
	if len(s.Failing) > 0 {
		fmt.Fprintf(&b, ", %d resources failing", len(s.Failing))
	}
	if len(s.Diverged) > 0 {
		fmt.Fprintf(&b, ", %d resources differ from the cluster", len(s.Diverged))
	}
	if s.Err != nil {
		fmt.Fprintf(&b, ": %v", s.Err)
	}
	return b.String()
}

// ResourceStatus is the status of one resource of a member.
type ResourceStatus struct {
	Resource schema.GroupVersionResource
	// Expected is how many objects the resource has once it has synced, as far as that is
	// known, and how many it has after that.
	Expected int
	// Verified is the last verification of the resource, nil if there was none. It must not
	// be modified.
	Verified *Verification
	watershed.Status
}

// String returns the status on one line, for people: it may change.
func (r ResourceStatus) String() string {
	return fmt.Sprintf("%s: %s", r.Resource.GroupResource(), r.Status)
}

// Status returns the member's status, at any time. It costs some 500 ns for each
// resource.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statusLocked(m.resourcesLocked())
}

func (m *Member) statusLocked(resources []ResourceStatus) Status {
	s := Status{
		Since: m.since, Err: cmp.Or(m.unlisted, m.err, m.missing), Identity: m.Identity(), Unstored: m.unstored,
		Scope: m.settings.scopeOf(m.used), JSON: slices.SortedFunc(maps.Keys(m.asJSON), first),
	}
	m.observeLocked(&s, resources)
	givenUp := s.count(resources)
	s.State = m.stateLocked(&s, givenUp)
	switch s.State {
	case Gone:
		s.Since = m.gone
	case Stale:
		s.blameFirst()
	}
	if m.unlisted != nil && !errors.Is(s.Err, m.unlisted) {
		s.Err = fmt.Errorf("%w; %w", m.unlisted, s.Err)
	}
	return s
}

// count adds up the resources, and lists those that fail or differ from the server. It returns
// for how many WaitForSync does not wait any more.
func (s *Status) count(resources []ResourceStatus) (givenUp int) {
	s.Resources = len(resources)
	for i := range resources {
		r := &resources[i]
		s.Objects += r.Objects
		s.Expected += r.Expected
		if r.Synced {
			s.Synced++
		}
		if r.Verified.Diverges() {
			s.Diverged = append(s.Diverged, *r)
		}
		if r.isFailing() {
			s.Failing = append(s.Failing, *r)
		}
		if r.isGivenUp() {
			givenUp++
		}
	}
	return givenUp
}

// stateLocked returns the state of a member whose resources were counted.
func (m *Member) stateLocked(s *Status, givenUp int) State {
	switch {
	case !m.gone.IsZero():
		return Gone
	case m.discovered.IsZero():
		return Connecting
	case s.Synced+givenUp < s.Resources:
		return Syncing
	case len(s.Failing) > 0:
		return Stale
	}
	return Live
}

// blameFirst makes the resource that began to fail first the reason of a status, and that time
// its beginning.
func (s *Status) blameFirst() {
	s.Since = time.Now()
	for i := range s.Failing {
		r := &s.Failing[i]
		if since := r.failingSince(); since.Before(s.Since) {
			s.Since = since
			s.Err = fmt.Errorf("%s: %w", r.Resource.GroupResource(), cmp.Or(r.Reflector.Err, errUnknown))
		}
	}
}

// observeLocked sets the parts of a status that do not determine the state.
func (m *Member) observeLocked(s *Status, resources []ResourceStatus) {
	now := time.Now()
	s.Joined, s.Probe, s.Shadowed = m.since, m.probed, slices.Clone(m.shadowed)
	if now.Sub(m.since) < removalAge {
		s.Predecessor = m.predecessor
	}
	for _, r := range m.removals {
		if now.Sub(r.At) < removalAge {
			s.Removals = append(s.Removals, r)
		}
	}
	s.Interruptions, s.Interrupted = m.interrupted.recent(now)
	for i := range resources {
		r := &resources[i]
		s.Queued += r.Queued
		heard := r.Reflector.Heard
		if heard.IsZero() {
			continue
		}
		if heard.After(s.Heard) {
			s.Heard = heard
		}
		if s.Quiet.IsZero() || heard.Before(s.Quiet) {
			s.Quiet = heard
		}
	}
}

// current reports whether the resource has synced and is being watched. Before its first
// watch StaleSince is zero, even if the watch has failed.
func (r *ResourceStatus) current() bool {
	c := &r.Reflector
	return r.Synced && c.StaleSince.IsZero() && c.State != reflector.Parked && (c.State == reflector.Watching || c.Err == nil)
}

// isFailing reports whether the resource is not current and is not being listed for the first
// time without an error.
func (r *ResourceStatus) isFailing() bool {
	return !r.current() && (r.Synced || r.Reflector.Err != nil)
}

// isGivenUp reports whether WaitForSync does not wait for the resource any more although it has
// not synced.
func (r *ResourceStatus) isGivenUp() bool {
	return !r.Synced && r.Reflector.Err != nil && (isRefused(r.Reflector.Err) || r.Reflector.Failures >= hopeless)
}

// failingSince returns when a resource that is not current ceased to be, or its first failure
// if it has never been current. Retries do not change it.
func (r *ResourceStatus) failingSince() time.Time {
	return cmp.Or(r.Reflector.StaleSince, r.Reflector.FailingSince, r.Reflector.ErrAt)
}

// resuming reports whether the resource has stored state, and has not caught up with the
// cluster yet.
func (r *ResourceStatus) resuming() bool {
	return !r.Synced && !r.Reflector.StaleSince.IsZero()
}

var errUnknown = errors.New("not current")

// hopeless is how often reading a resource must have failed before WaitForSync stops
// waiting for it. The resource is retried all the same.
const hopeless = 3

// Resources returns the resources that are mirrored, sorted by name.
func (m *Member) Resources() []ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resourcesLocked()
}

func (m *Member) resourcesLocked() []ResourceStatus {
	// Statuses are large: sorting the mirrors is cheaper.
	mirrors := slices.SortedFunc(maps.Values(m.mirrors), func(a, b *mirror) int {
		return cmp.Or(cmp.Compare(a.resource.Resource, b.resource.Resource), cmp.Compare(a.resource.Group, b.resource.Group))
	})
	all := make([]ResourceStatus, len(mirrors))
	for i, x := range mirrors {
		s := &all[i]
		s.Resource, s.Verified, s.Status = x.resource.GroupVersionResource, x.verified.Load(), x.informer.Status()
		s.Expected = s.Objects
		if !s.Synced {
			s.Expected = max(s.Objects, int(x.source.expected.Load()))
		}
	}
	return all
}

// isRefused reports whether a retry is not likely to help.
func isRefused(err error) bool {
	return errors.Is(err, ErrLimit) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// WaitForSync waits until every resource that the cluster serves has been read once, or
// reading it was refused or has failed three times. One bad type does not block the
// others, and is listed in [Status.Failing]. The error is that of ctx, or
// [ErrUnreachable] if the first attempt to reach the cluster failed; the member keeps
// retrying.
func (m *Member) WaitForSync(ctx context.Context) error {
	for {
		changed := m.changed.wait()
		s, unsynced := m.syncing()
		switch {
		case s.State == Live, s.State == Stale:
			return nil
		case s.State == Gone, s.State == Connecting && s.Err != nil:
			return fmt.Errorf("wait for %s: %w: %w", m.name, ErrUnreachable, cmp.Or(s.Err, errors.New("it has left")))
		}
		if err := awaitSync(ctx, changed, unsynced); err != nil {
			return fmt.Errorf("wait for %s: %w", m.name, err)
		}
	}
}

// syncing returns the status, and the channels that are closed when the resources have synced
// that WaitForSync still waits for.
func (m *Member) syncing() (Status, []<-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.resourcesLocked()
	var unsynced []<-chan struct{}
	for i := range all {
		if r := &all[i]; !r.Synced && !r.isGivenUp() {
			unsynced = append(unsynced, m.mirrors[r.Resource.GroupResource()].informer.Synced())
		}
	}
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

// Stale returns the group versions that discovery could not read because the server
// behind them does not respond.
func (m *Member) Stale() []schema.GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []schema.GroupVersion
	for _, err := range split(m.missing) {
		var group *kube.GroupError
		if errors.As(err, &group) {
			all = append(all, group.GroupVersion)
		}
	}
	return all
}

// Discovered reports whether the resources of the cluster are known: discovery has succeeded, or
// they are those of its last state. Before that, the absence of a resource means nothing.
func (m *Member) Discovered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed != nil
}

// split returns the errors that err joins.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, split(one)...)
	}
	return all
}
