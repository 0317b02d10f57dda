// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/delta"
)

// intake reads states and events from a source into a queue, and remembers how far it has
// come. Only Run uses it, except the recorder.
type intake[T any] struct {
	recorder
	source Source[T]
	queue  *delta.FIFO[T]
	opts   Options

	// version is the last one seen, "" before the first list. It outlives Run, as the
	// consumer's copy does.
	version string
	// back means that the source has gone back behind version, and that no list has been
	// completed since.
	back bool
	// vague means that the last list had an object whose key could not be read, and
	// inferred no deletion.
	vague bool
	// holds means that the consumer may have objects.
	holds bool
	// continued means that the copy is from an earlier run and has to catch up, to the
	// version goal: see [Reflector.Continue]. elsewhere means that its version has expired
	// and is tried on another connection, and attempts counts the watches that have ended
	// before it was reached.
	continued, elsewhere bool
	attempts             int
	goal                 atomic.Uint64
	// stored compares a continued copy with the source.
	stored comparison
	// cause is why the state is being read.
	cause Cause
	// arrived is when the first watch event arrived that [Reflector.Arrived] has not
	// returned, in nanoseconds since 1970, or 0. An event costs one atomic load for it.
	arrived atomic.Int64
}

// add queues one object of a list.
func (in *intake[T]) add(ctx context.Context, relist *delta.Relist[T], obj T) error {
	in.holds = true
	return in.keep(ctx, relist.Add(ctx, obj))
}

// keep returns a queue error that ends the reflector, and records one that concerns only
// a single object.
func (in *intake[T]) keep(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, delta.ErrClosed) {
		return err
	}
	in.drop(err)
	return nil
}

// served reports whether the source has the resource, and fails if there is no response.
func (in *intake[T]) served(ctx context.Context) (bool, error) {
	quiet := listen(ctx, in.opts.Silence, time.Time{})
	defer quiet.stop()
	served, err := in.source.Served(quiet.ctx)
	return served, quiet.cause(err)
}

// clear deletes all objects. The version stays: objects that come back are newer, unless
// the source has gone back.
func (in *intake[T]) clear(ctx context.Context) error {
	in.logger.Info("objects are deleted: the server does not have the resource", "for", in.opts.Absence)
	in.holds = false
	relist, err := in.queue.Relist(ctx)
	if err != nil {
		return err
	}
	defer relist.Close()
	return relist.Commit(ctx, 0)
}
