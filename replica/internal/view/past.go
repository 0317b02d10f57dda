// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Past is a resource of one cluster at a time in the past.
type Past struct {
	*Cluster
	at time.Time
	// key selects one object, "" all of them.
	key string
	// found is called with the time at which the state arrived.
	found func(time.Time)
}

// At returns the view of the state that the copy of a cluster had at a time. A key other than ""
// means that only the object with that key is read. Found is called with the time at which the
// state arrived, when it is read.
func (c *Cluster) At(at time.Time, key string, found func(time.Time)) *Past {
	return &Past{c, at, key, found}
}

// NotOlder implements [View]. It reads the state of the time: a list of the past has no version.
func (p *Past) NotOlder(ctx context.Context, _ uint64) (*State, error) {
	if err := p.gate.Allow(p.at); err != nil {
		return nil, err
	}
	if err := p.gate.Enter(); err != nil {
		return nil, err
	}
	past, err := p.feed.AtTime(ctx, p.at, history.Wanted{Key: p.key})
	if err != nil {
		return nil, PastError(p.feed.Resource().GroupResource(), p.at, err)
	}
	if err := p.gate.Check(past); err != nil {
		return nil, err
	}
	p.found(past.Time)
	return &State{Version: past.Version, Parts: []Part{PastPart(p.member.Name(), past)}}, nil
}

// Exact implements [View]. The version is that of a continue token, usually of a list of the same
// time. A time that is relative to now has another state by then.
func (p *Past) Exact(ctx context.Context, version uint64) (*State, error) {
	s, err := p.NotOlder(ctx, 0)
	if err != nil || s.Version == version {
		return s, err
	}
	return p.Cluster.Exact(ctx, version)
}

// Watch implements [View].
func (p *Past) Watch(context.Context, Start, *Matcher) (Watch, error) { return nil, errPastWatch }

var errPastWatch = apierrors.NewBadRequest("the past cannot be watched")

// PastPart returns the objects of a cluster at a time in the past.
func PastPart(cluster string, past *history.Archived) Part {
	return Part{Cluster: cluster, objects: past}
}

// FleetPast is a resource of several clusters at a time in the past. The version of its states is
// the time in nanoseconds, and only continue tokens have it: all pages of a list are of one time.
type FleetPast struct {
	*Fleet
	at   time.Time
	read func(context.Context, time.Time) ([]Part, error)
}

// At returns the view of a time in the past. Read returns the objects of the clusters at a time.
func (f *Fleet) At(at time.Time, read func(context.Context, time.Time) ([]Part, error)) *FleetPast {
	return &FleetPast{f, at, read}
}

// NotOlder implements [View].
func (p *FleetPast) NotOlder(ctx context.Context, _ uint64) (*State, error) {
	parts, err := p.read(ctx, p.at)
	if err != nil {
		return nil, err
	}
	return &State{Version: uint64(p.at.UnixNano()), unversioned: true, Parts: parts}, nil
}

// Exact implements [View]. The version is that of a continue token.
func (p *FleetPast) Exact(ctx context.Context, version uint64) (*State, error) {
	at := time.Unix(0, int64(version))
	if at.After(time.Now()) {
		return nil, status.Expired(status.VersionExpired, "") // the token is not ours
	}
	return p.Fleet.At(at, p.read).NotOlder(ctx, 0)
}

// Keep implements [View]. The next page reads the files again.
func (p *FleetPast) Keep(*State) {}

// Watch implements [View].
func (p *FleetPast) Watch(context.Context, Start, *Matcher) (Watch, error) { return nil, errPastWatch }

func (p *FleetPast) missing(r schema.GroupResource, name string) error {
	return apierrors.NewNotFound(r, name)
}

// list returns another name than for the present, where versions mean something else.
func (p *FleetPast) list(namespace string) string { return "at " + p.Fleet.list(namespace) }

// PastError returns the response to a request for the past of a resource that failed.
func PastError(r schema.GroupResource, at time.Time, err error) error {
	tooOld := (*history.TooOldError)(nil)
	switch {
	case errors.Is(err, history.ErrNotStored):
		return apierrors.NewBadRequest("the server does not store the past: it needs --data-dir")
	case errors.As(err, &tooOld):
		return status.Expired(fmt.Sprintf("the past of %s begins at %s", r, tooOld.Oldest.UTC().Format(time.RFC3339)),
			"")
	case errors.Is(err, history.ErrIncomplete):
		return status.Expired(fmt.Sprintf("the state of %s at %s is not known: changes are missing in the files", r,
			at.UTC().Format(time.RFC3339)), "")
	case errors.Is(err, history.ErrNotReady):
		return status.New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"the state is not written yet, try again")
	}
	return err
}
