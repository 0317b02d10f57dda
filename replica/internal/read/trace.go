// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/replica/internal/view"
)

// tracedView reports waits for a version to a trace.
type tracedView struct {
	view.View
	wait func() (end func())
}

// NotOlder implements [view.View].
func (v tracedView) NotOlder(ctx context.Context, version uint64) (*view.State, error) {
	defer v.wait()()
	return v.View.NotOlder(ctx, version)
}

// Exact implements [view.View].
func (v tracedView) Exact(ctx context.Context, version uint64) (*view.State, error) {
	defer v.wait()()
	return v.View.Exact(ctx, version)
}

// pendingDeliveries are the changes of the sample that a stream has in its buffer. It is nil if
// none are followed.
type pendingDeliveries struct {
	// delivery is [Request.Delivery].
	delivery func(cluster string, r schema.GroupResource, version uint64) (delivered func())
	resource schema.GroupResource
	// cluster is the cluster of the view, "" if the view has several.
	cluster string
	waiting []func()
}

// add adds an event if it is of the sample.
func (d *pendingDeliveries) add(e view.Event) {
	cluster, version := d.cluster, e.Object.Version()
	switch {
	case cluster == "":
		cluster = e.Cluster
	case e.Version != 0:
		version = e.Version // the object does not match any more, and is that of an earlier version
	}
	if delivered := d.delivery(cluster, d.resource, version); delivered != nil {
		d.waiting = append(d.waiting, delivered)
	}
}

// sent reports that the events of the buffer have been written.
func (d *pendingDeliveries) sent() {
	for _, delivered := range d.waiting {
		delivered()
	}
	d.waiting = nil
}
