// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package view

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Cluster is a resource of one cluster, with the versions of its API server.
type Cluster struct {
	member *fleet.Member
	feed   *history.Feed
	gate   Gate
	missed *Missed
}

// Gate decides whether a request may read states that are no longer in memory.
type Gate struct {
	// Allow returns an error if the caller may not read the state of a time.
	Allow func(time.Time) error
	// Check is called with a state that was read from files. It returns an error if the caller may
	// not read it, or if it is too large.
	Check func(*history.Archived) error
	// Enter is called before files are read. It returns an error if too much of the past is
	// being read.
	Enter func() error
}

// OfCluster returns the view of a feed of a member, whose missed changes are shared by all views of
// the member.
func OfCluster(m *fleet.Member, feed *history.Feed, gate Gate, missed *Missed) *Cluster {
	return &Cluster{member: m, feed: feed, gate: gate, missed: missed}
}

// Spans implements [View].
func (c *Cluster) Spans() bool { return false }

// Now implements [View].
func (c *Cluster) Now() *State {
	now, err := c.feed.Now()
	if err != nil {
		return nil
	}
	return c.state(now)
}

func (c *Cluster) state(m *history.Moment) *State {
	return &State{Version: m.Version, Parts: []Part{{Cluster: c.member.Name(), objects: m.State}}}
}

// NotOlder implements [View].
func (c *Cluster) NotOlder(ctx context.Context, version uint64) (*State, error) {
	now, err := c.wait(ctx, version)
	if err != nil {
		return nil, err
	}
	return c.state(now), nil
}

// wait returns a state that is not older than a version.
func (c *Cluster) wait(ctx context.Context, version uint64) (*history.Moment, error) {
	ctx, cancel := context.WithTimeout(ctx, freshness)
	defer cancel()
	now, err := c.feed.Wait(ctx, version)
	switch {
	case errors.Is(err, history.ErrFuture):
		return nil, status.TooLarge(version, now.Version)
	case err != nil:
		return nil, status.NotReady()
	}
	return now, nil
}

// Exact implements [View].
func (c *Cluster) Exact(ctx context.Context, version uint64) (*State, error) {
	past, err := c.feed.At(version)
	switch {
	case errors.Is(err, history.ErrNotReady):
		return nil, status.NotReady()
	case errors.Is(err, history.ErrFuture):
		if _, err := c.wait(ctx, version); err != nil {
			return nil, err
		}
		return c.Exact(ctx, version) // the copy has reached it
	case err != nil:
		return c.archived(ctx, version)
	}
	return &State{Version: version, Parts: []Part{{Cluster: c.member.Name(), objects: past}}}, nil
}

// archived returns the state at a version from files.
func (c *Cluster) archived(ctx context.Context, version uint64) (*State, error) {
	if !c.feed.Reaches(version) {
		return nil, status.Expired(status.VersionExpired, "")
	}
	if err := c.gate.Enter(); err != nil {
		return nil, err
	}
	past, err := c.feed.AtVersion(ctx, version)
	if err != nil || c.gate.Allow(past.Time) != nil || c.gate.Check(past) != nil {
		return nil, status.Expired(status.VersionExpired, "")
	}
	return &State{Version: version, Parts: []Part{{Cluster: c.member.Name(), objects: past}}}, nil
}

// Keep implements [View]. The history of the cluster has the state.
func (c *Cluster) Keep(*State) {}

func (c *Cluster) missing(r schema.GroupResource, name string) error {
	return apierrors.NewNotFound(r, name)
}

// issue implements [View]: the versions are the cluster's.
func (c *Cluster) issue(uint64) error { return nil }

func (c *Cluster) list(string) string { return "" }

// start returns the key within the namespace of the list, as kube-apiserver does.
func (c *Cluster) start(_, key, prefix string) string { return key[len(prefix):] + "\x00" }

// after accepts the starts of kube-apiserver too, of which some begin with a slash.
func (c *Cluster) after(start, prefix string) (cluster, key string) {
	return c.member.Name(), prefix + tokenKey(strings.TrimPrefix(start, "/"))
}
