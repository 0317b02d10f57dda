// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Trace follows the requests of a fleet and a sample of the changes that it reads. Its methods
// are called by many goroutines, which wait for them. A change is identified by its cluster,
// its resource and its version.
type Trace interface {
	// Wrap returns the transport for the fleet's own requests to a cluster.
	Wrap(cluster string, next http.RoundTripper) http.RoundTripper
	// Arrived is called for each change that a watch has read and decoded.
	Arrived(cluster string, r schema.GroupResource, version uint64)
	// Active reports whether a change of the sample is on its way. Stored is called only while
	// it is.
	Active() bool
	// Stored is called for each change that readers of the fleet can see now.
	Stored(cluster string, r schema.GroupResource, version uint64)
}

// wrap returns the function that wraps the transport of a cluster, nil without a trace.
func (s *settings) wrap(cluster string) func(http.RoundTripper) http.RoundTripper {
	if s.Trace == nil {
		return nil
	}
	return func(next http.RoundTripper) http.RoundTripper { return s.Trace.Wrap(cluster, next) }
}

// stored reports a batch to the trace. It costs one call unless a change is followed.
func stored(t Trace, x *mirror, changes []store.Change[*wire.Object]) {
	if !t.Active() {
		return
	}
	for i := range changes {
		t.Stored(x.cluster, x.resource.GroupResource(), changes[i].Version)
	}
}
