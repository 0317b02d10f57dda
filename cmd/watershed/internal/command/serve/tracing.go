// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package serve

import (
	"github.com/watershed-project/watershed/cmd/watershed/internal/tracing"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// traceInto sets the hooks of a tracing. An interface with a nil pointer would not be nil.
func traceInto(t *tracing.Tracing, f *fleet.Options, r *replica.Options) {
	if t == nil {
		return
	}
	if f != nil {
		f.Trace = t
	}
	if r != nil {
		r.Trace, r.DeliveryTrace = t.Request, t
	}
}

// droppedSpans returns the function that counts the dropped spans, nil without a tracing.
func droppedSpans(t *tracing.Tracing) func() uint64 {
	if t == nil {
		return nil
	}
	return t.Dropped
}
