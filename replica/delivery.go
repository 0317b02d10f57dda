// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/replica/internal/view"
)

// deliveries are the changes of the sample that a stream has in its buffer. It is nil without
// [Options.Deliveries].
type deliveries struct {
	Deliveries
	resource schema.GroupResource
	// cluster is the cluster of the view, "" if the view has several.
	cluster string
	trace   Trace
	waiting []func()
}

// add adds an event if it is of the sample.
func (d *deliveries) add(e view.Event) {
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
	if delivered := d.Delivery(cluster, d.resource, version, d.trace); delivered != nil {
		d.waiting = append(d.waiting, delivered)
	}
}

// sent reports that the events of the buffer have been written.
func (d *deliveries) sent() {
	for _, delivered := range d.waiting {
		delivered()
	}
	d.waiting = nil
}
