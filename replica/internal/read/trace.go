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
	trace Trace
}

// NotOlder implements [view.View].
func (v tracedView) NotOlder(ctx context.Context, version uint64) (*view.State, error) {
	defer v.trace.Wait()()
	return v.View.NotOlder(ctx, version)
}

// Exact implements [view.View].
func (v tracedView) Exact(ctx context.Context, version uint64) (*view.State, error) {
	defer v.trace.Wait()()
	return v.View.Exact(ctx, version)
}

// wait begins the wait for a version, and returns the function that ends it.
func (c *call) wait() (end func()) {
	if c.Trace == nil {
		return noPhase
	}
	return c.Trace.Wait()
}

// selects begins the selection of objects, and returns the function that ends it.
func (c *call) selects() (end func()) {
	if c.Trace == nil {
		return noPhase
	}
	return c.Trace.Select()
}

// noPhase ends a phase that is not followed.
func noPhase() {}

// newDeliveries returns the deliveries of a watch, nil if there are none to follow.
func (c *call) newDeliveries() *pendingDeliveries {
	if c.DeliveryTrace == nil {
		return nil
	}
	return &pendingDeliveries{DeliveryTrace: c.DeliveryTrace, resource: c.GroupResource(), cluster: c.Cluster}
}

// pendingDeliveries are the changes of the sample that a stream has in its buffer. It is nil if
// none are followed.
type pendingDeliveries struct {
	DeliveryTrace
	resource schema.GroupResource
	// cluster is the cluster of the view, "" if the view has several.
	cluster string
	waiting []func()
}

// add adds an event if it is of the sample.
func (d *pendingDeliveries) add(e view.Event) {
	if !d.Active() {
		return
	}
	cluster, version := d.cluster, e.Object.Version()
	switch {
	case cluster == "":
		cluster = e.Cluster
	case e.Version != 0:
		version = e.Version // the object does not match any more, and is that of an earlier version
	}
	if delivered := d.Delivery(cluster, d.resource, version); delivered != nil {
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
