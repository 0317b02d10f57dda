// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package health

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/reflector"
)

// State is the stage of a member's life.
type State uint8

const (
	// Connecting means that the cluster's resources have not been discovered yet. Its last
	// state may be readable, see Options.LastState of package fleet.
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
	names := [...]string{Connecting: "connecting", Syncing: "syncing", Live: "live", Stale: "stale", Gone: "gone"}
	return names[min(s, Gone)]
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
	Predecessor upstream.Identity
	// Joined is when the member joined.
	Joined time.Time
	// Identity is the cluster's. Without a UID, another cluster at the same endpoint is
	// not detected.
	Identity upstream.Identity
	// Unstored is why the objects of the cluster are not stored, although Options.Disk of package
	// fleet is set: the UID of its Identity was not known at the first discovery.
	Unstored error
	// Scope is the part of the cluster that is mirrored.
	Scope selection.Scope
	// JSON has the resources that are read as JSON, because objects have fields that the
	// Go types of this program do not have.
	JSON []schema.GroupResource
	// Failing has the resources that are not current or could not be read, sorted by
	// name.
	Failing []ResourceStatus
	// Diverged has the resources whose copy differed from the server when it was last
	// verified, and was not repaired, sorted by name. See Member.Verify of package
	// fleet.
	Diverged []ResourceStatus
}

// String returns the status on one line, for people: it may change.
func (s Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s since %s, %d of %d resources synced, %d objects", s.State, s.Since.Format(time.RFC3339),
		s.Synced, s.Resources, s.Objects)
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
	Verified *verify.Verification
	watershed.Status
}

// String returns the status on one line, for people: it may change.
func (r ResourceStatus) String() string {
	return fmt.Sprintf("%s: %s", r.Resource.GroupResource(), r.Status)
}

// The functions below are not methods, because Status and ResourceStatus are public.

// Count adds up the resources, lists those that fail or differ from the server, and sets when they
// last sent something. It returns for how many WaitForSync does not wait any more.
func Count(s *Status, resources []ResourceStatus) (givenUp int) {
	s.Resources = len(resources)
	for i := range resources {
		r := &resources[i]
		s.Objects += r.Objects
		s.Expected += r.Expected
		s.Queued += r.Queued
		if heard := r.Reflector.Heard; !heard.IsZero() {
			if heard.After(s.Heard) {
				s.Heard = heard
			}
			if s.Quiet.IsZero() || heard.Before(s.Quiet) {
				s.Quiet = heard
			}
		}
		if r.Synced {
			s.Synced++
		}
		if r.Verified.Diverges() {
			s.Diverged = append(s.Diverged, *r)
		}
		if IsFailing(r) {
			s.Failing = append(s.Failing, *r)
		}
		if IsGivenUp(r) {
			givenUp++
		}
	}
	return givenUp
}

// BlameFirst makes the resource that began to fail first the reason of a status, and that time
// its beginning.
func BlameFirst(s *Status) {
	s.Since = time.Now()
	for i := range s.Failing {
		r := &s.Failing[i]
		if since := FailingSince(r); since.Before(s.Since) {
			s.Since = since
			s.Err = fmt.Errorf("%s: %w", r.Resource.GroupResource(), cmp.Or(r.Reflector.Err, ErrUnknown))
		}
	}
}

// IsCurrent reports whether the resource has synced and is being watched. Before its first
// watch StaleSince is zero, even if the watch has failed.
func IsCurrent(r *ResourceStatus) bool {
	c := &r.Reflector
	return r.Synced && c.StaleSince.IsZero() && c.State != reflector.Parked &&
		(c.State == reflector.Watching || c.Err == nil)
}

// IsFailing reports whether the resource is not current and is not being listed for the first
// time without an error.
func IsFailing(r *ResourceStatus) bool {
	return !IsCurrent(r) && (r.Synced || r.Reflector.Err != nil)
}

// IsGivenUp reports whether WaitForSync does not wait for the resource any more although it has
// not synced.
func IsGivenUp(r *ResourceStatus) bool {
	return !r.Synced && r.Reflector.Err != nil && (IsRefused(r.Reflector.Err) || r.Reflector.Failures >= Hopeless)
}

// FailingSince returns when a resource that is not current ceased to be, or its first failure
// if it has never been current. Retries do not change it.
func FailingSince(r *ResourceStatus) time.Time {
	return cmp.Or(r.Reflector.StaleSince, r.Reflector.FailingSince, r.Reflector.ErrAt)
}

// IsResuming reports whether the resource has stored state, and has not caught up with the
// cluster yet.
func IsResuming(r *ResourceStatus) bool {
	return !r.Synced && !r.Reflector.StaleSince.IsZero()
}

// ErrUnknown is the error of a resource that is not current without an error.
var ErrUnknown = errors.New("not current")

// Hopeless is how often reading a resource must have failed before WaitForSync stops
// waiting for it. The resource is retried all the same.
const Hopeless = 3

// IsRefused reports whether a retry is not likely to help.
func IsRefused(err error) bool {
	return errors.Is(err, quota.ErrLimit) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// Split returns the errors that err joins.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, Split(one)...)
	}
	return all
}
