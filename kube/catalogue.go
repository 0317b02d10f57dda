// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// missInterval is the minimum age of a discovery before a lookup that it cannot answer
// causes another one.
const missInterval = 2 * time.Second

// catalogue holds the result of the last discovery, none before the first Resolve.
type catalogue struct {
	// turn is held by the caller that runs discovery. It is a channel, because waiting
	// for it must be cancellable.
	turn   chan struct{}
	latest atomic.Pointer[edition]
}

// edition is the result of one discovery, by kind and by resource. Preferred versions can
// also be found without their version.
type edition struct {
	at         time.Time
	byKind     map[schema.GroupVersionKind]*Resource
	byResource map[schema.GroupVersionResource]*Resource
	err        error // the part that is missing
}

func newCatalogue() catalogue { return catalogue{turn: make(chan struct{}, 1)} }

func newEdition(resources []Resource, at time.Time, err error) *edition {
	e := &edition{
		at:         at,
		byKind:     make(map[schema.GroupVersionKind]*Resource, len(resources)),
		byResource: make(map[schema.GroupVersionResource]*Resource, len(resources)),
		err:        err,
	}
	for i := range resources {
		r := &resources[i]
		e.add(r, r.Version)
		if r.Preferred {
			e.add(r, "")
		}
	}
	return e
}

// add keeps the first resource of a kind: later ones are other views of it.
func (e *edition) add(r *Resource, version string) {
	gvk := schema.GroupVersionKind{Group: r.Group, Version: version, Kind: r.Kind}
	if e.byKind[gvk] == nil {
		e.byKind[gvk] = r
	}
	gvr := schema.GroupVersionResource{Group: r.Group, Version: version, Resource: r.Resource}
	if e.byResource[gvr] == nil {
		e.byResource[gvr] = r
	}
}

// forget drops the last discovery if it contains resource, which the server has reported
// as not served.
func (c *catalogue) forget(resource schema.GroupVersionResource) {
	if e := c.latest.Load(); e != nil && e.byResource[resource] != nil {
		c.latest.CompareAndSwap(e, nil)
	}
}

// Resolve returns the resource of a kind; without a version, in the version that the
// server prefers. It uses the last discovery. If that does not contain the kind, it is
// repeated, unless it is less than two seconds old. If the cluster does not serve the
// kind, [meta.IsNoMatchError] is true for the error.
func (c *Cluster) Resolve(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	return c.resolveKind(ctx, kind, missInterval)
}

func (c *Cluster) resolveKind(ctx context.Context, kind schema.GroupVersionKind, fresh time.Duration) (Resource, error) {
	miss := &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	if kind.Version != "" {
		miss.SearchedVersions = []string{kind.Version}
	}
	return c.resolve(ctx, fresh, miss, func(e *edition) *Resource { return e.byKind[kind] })
}

// ResolveResource is Resolve for a resource.
func (c *Cluster) ResolveResource(ctx context.Context, resource schema.GroupVersionResource) (Resource, error) {
	miss := &meta.NoResourceMatchError{PartialResource: resource}
	return c.resolve(ctx, missInterval, miss, func(e *edition) *Resource { return e.byResource[resource] })
}

// resolve finds a resource, or returns miss. If the resource is not in the last
// discovery, it repeats a discovery that is older than fresh.
func (c *Cluster) resolve(ctx context.Context, fresh time.Duration, miss error, find func(*edition) *Resource) (Resource, error) {
	began := time.Now()
	if e := c.catalogue.latest.Load(); e != nil {
		if r := find(e); r != nil {
			return *r, nil
		}
	}
	select {
	case c.catalogue.turn <- struct{}{}:
		defer func() { <-c.catalogue.turn }()
	case <-ctx.Done():
		return Resource{}, fmt.Errorf("discover in %s: %w", c.name, ctx.Err())
	}
	// The previous holder of the turn may have run discovery meanwhile.
	e := c.catalogue.latest.Load()
	if e == nil || find(e) == nil && e.at.Before(began.Add(-fresh)) {
		at := time.Now()
		resources, err := c.Resources(ctx)
		if len(resources) == 0 && err != nil {
			return Resource{}, err
		}
		e = newEdition(resources, at, err)
		c.catalogue.latest.Store(e)
	}
	if r := find(e); r != nil {
		return *r, nil
	}
	if e.err != nil {
		return Resource{}, fmt.Errorf("discover in %s: %w, while discovery is incomplete: %w", c.name, miss, e.err)
	}
	return Resource{}, fmt.Errorf("discover in %s: %w", c.name, miss)
}
