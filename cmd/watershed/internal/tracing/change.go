// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/replica"
)

const (
	// mostChanges is how many changes are followed at once.
	mostChanges = 256
	// mostDeliveries is how many deliveries of a change have a span. All are counted.
	mostDeliveries = 8
	// followFor is how long a change is followed.
	followFor = 5 * time.Second
	// sweepEvery is how often changes are checked for their age.
	sweepEvery = time.Second
)

// changes has the changes that are followed.
type changes struct {
	tracing *Tracing
	// every is how many changes there are for one that is followed, 0 if none is, and count
	// counts them.
	every, count atomic.Uint64
	// open is the number of changes that are followed: all others cost one load of it.
	open atomic.Int64

	// mu guards followed.
	mu       sync.Mutex
	followed map[changeKey]*change
}

// changeKey identifies a change.
type changeKey struct {
	cluster  string
	resource schema.GroupResource
	version  uint64
}

// change is a change that is followed. The mutex of changes guards it.
type change struct {
	ctx           context.Context
	read, decoded time.Time
	// stored is zero before the change is stored, and last is when the last thing happened.
	stored, last time.Time
	deliveries   int
}

func (c *changes) init(t *Tracing) {
	c.tracing, c.followed = t, map[changeKey]*change{}
	if t.rate > 0 {
		c.every.Store(uint64(max(1, million/t.rate)))
	}
}

// Arrived is part of [fleet.Trace]. It begins to follow one change in many.
func (t *Tracing) Arrived(cluster string, r schema.GroupResource, version uint64) {
	c := &t.changes
	every := c.every.Load()
	if every == 0 || c.count.Add(1)%every != 0 || c.open.Load() >= mostChanges {
		return
	}
	now := time.Now()
	read := t.reads.last(cluster, r, now)
	ctx, span := t.tracer.Start(context.Background(), "change "+r.String(), trace.WithTimestamp(read), trace.WithSpanKind(trace.SpanKindConsumer))
	span.SetAttributes(attribute.String("k8s.cluster.name", cluster), attribute.String("watershed.resource", r.String()), attribute.Int64("watershed.resource_version", int64(version)))
	t.part(ctx, "decode", read, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	key := changeKey{cluster, r, version}
	if old := c.followed[key]; old != nil { // a watch that was opened again repeats it
		c.endLocked(key, old)
	}
	c.followed[key] = &change{ctx: ctx, read: read, decoded: now, last: now}
	c.open.Store(int64(len(c.followed)))
}

// part makes the span of a part of the way of a change.
func (t *Tracing) part(ctx context.Context, name string, began, end time.Time, opts ...trace.SpanStartOption) {
	_, span := t.tracer.Start(ctx, name, append(opts, trace.WithTimestamp(began))...)
	span.End(trace.WithTimestamp(end))
}

// Active is part of [fleet.Trace] and [replica.Deliveries].
func (t *Tracing) Active() bool { return t.changes.open.Load() > 0 }

// Stored is part of [fleet.Trace].
func (t *Tracing) Stored(cluster string, r schema.GroupResource, version uint64) {
	c := &t.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.followed[changeKey{cluster, r, version}]
	if one == nil || !one.stored.IsZero() {
		return
	}
	one.stored = time.Now()
	one.last = one.stored
	t.part(one.ctx, "store", one.decoded, one.stored)
}

// Delivery is part of [replica.Deliveries].
func (t *Tracing) Delivery(cluster string, r schema.GroupResource, version uint64, watch replica.Trace) (delivered func()) {
	key := changeKey{cluster, r, version}
	c := &t.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed[key] == nil {
		return nil
	}
	return func() { c.delivered(key, watch) }
}

// delivered records that a change was written to the client of a watch.
func (c *changes) delivered(key changeKey, watch replica.Trace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.followed[key]
	if one == nil {
		return
	}
	began := one.stored
	if began.IsZero() {
		began = one.decoded // the watch was faster than the report that it is stored
	}
	one.last = time.Now()
	if one.deliveries++; one.deliveries > mostDeliveries {
		return
	}
	var opts []trace.SpanStartOption
	if w, ok := watch.(*request); ok && w.ctx != nil {
		if at := trace.SpanContextFromContext(w.ctx); at.IsSampled() {
			opts = append(opts, trace.WithLinks(trace.Link{SpanContext: at}))
		}
	}
	c.tracing.part(one.ctx, "deliver", began, one.last, opts...)
}

// sweep ends the changes that were read before a time, or all if it is zero.
func (c *changes) sweep(before time.Time) {
	if c.open.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, one := range c.followed {
		if before.IsZero() || one.read.Before(before) {
			c.endLocked(key, one)
		}
	}
	c.open.Store(int64(len(c.followed)))
}

// endLocked ends the span of a change.
func (c *changes) endLocked(key changeKey, one *change) {
	span := trace.SpanFromContext(one.ctx)
	span.SetAttributes(attribute.Int("watershed.deliveries", one.deliveries))
	span.End(trace.WithTimestamp(one.last))
	delete(c.followed, key)
}
