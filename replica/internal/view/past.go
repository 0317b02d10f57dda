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

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Past is a resource of one cluster at a time in the past.
type Past struct {
	*Cluster
	// Time is when the state arrived.
	Time  time.Time
	state *State
}

// At returns the view of the state that the copy of a cluster had at a time. If one is set, the
// state has only the object with a key.
func (c *Cluster) At(ctx context.Context, at time.Time, one bool, key string) (*Past, error) {
	if err := c.gate.Allow(at); err != nil {
		return nil, err
	}
	if err := c.gate.Enter(); err != nil {
		return nil, err
	}
	var past *fleet.Archived
	var err error
	if one {
		past, err = c.feed.ObjectAtTime(ctx, at, key)
	} else {
		past, err = c.feed.AtTime(ctx, at)
	}
	if err != nil {
		return nil, PastError(c.feed.Resource().GroupResource(), at, err)
	}
	state := &State{Version: past.Version, Parts: []Part{{Cluster: c.member.Name(), objects: past}}}
	return &Past{c, past.Time, state}, nil
}

// PastError returns the response to a request for the past of a resource that failed.
func PastError(r schema.GroupResource, at time.Time, err error) error {
	tooOld := (*fleet.TooOldError)(nil)
	switch {
	case errors.Is(err, fleet.ErrNotStored):
		return apierrors.NewBadRequest("the server does not store the past: it needs --data-dir")
	case errors.As(err, &tooOld):
		return status.Expired(fmt.Sprintf("the past of %s begins at %s", r, tooOld.Oldest.UTC().Format(time.RFC3339)), "")
	case errors.Is(err, fleet.ErrIncomplete):
		return status.Expired(fmt.Sprintf("the state of %s at %s is not known: changes are missing in the files", r, at.UTC().Format(time.RFC3339)), "")
	case errors.Is(err, fleet.ErrNotReady):
		return status.New(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the state is not written yet, try again")
	}
	return err
}

// Now implements [View].
func (p *Past) Now() *State { return p.state }

// NotOlder implements [View].
func (p *Past) NotOlder(context.Context, uint64) (*State, error) { return p.state, nil }

// Exact implements [View]. The version is that of a continue token.
func (p *Past) Exact(ctx context.Context, version uint64) (*State, error) {
	if version == p.state.Version {
		return p.state, nil
	}
	return p.Cluster.Exact(ctx, version)
}

// Watch implements [View].
func (p *Past) Watch(context.Context, Start, *Matcher) (Watch, error) {
	return nil, apierrors.NewBadRequest("the past cannot be watched")
}
