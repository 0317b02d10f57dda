// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
