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
	*sample
	reads *reads
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

func (c *changes) init(s *sample, r *reads) {
	c.sample, c.reads, c.followed = s, r, map[changeKey]*change{}
	if s.rate > 0 {
		c.every.Store(uint64(max(1, million/s.rate)))
	}
}

// arrived begins to follow one change in many.
func (c *changes) arrived(cluster string, r schema.GroupResource, version uint64) {
	every := c.every.Load()
	if every == 0 || c.count.Add(1)%every != 0 || c.open.Load() >= mostChanges {
		return
	}
	now := time.Now()
	read := c.reads.last(cluster, r, now)
	ctx, span := c.tracer.Start(context.Background(), "change "+r.String(), trace.WithTimestamp(read),
		trace.WithSpanKind(trace.SpanKindConsumer))
	span.SetAttributes(attribute.String("k8s.cluster.name", cluster),
		attribute.String("watershed.resource", r.String()),
		attribute.Int64("watershed.resource_version", int64(version)))
	c.part(ctx, "decode", read, now)
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
func (c *changes) part(ctx context.Context, name string, began, end time.Time, opts ...trace.SpanStartOption) {
	_, span := c.tracer.Start(ctx, name, append(opts, trace.WithTimestamp(began))...)
	span.End(trace.WithTimestamp(end))
}

// stored records that readers of the fleet can see a change.
func (c *changes) stored(cluster string, r schema.GroupResource, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.followed[changeKey{cluster, r, version}]
	if one == nil || !one.stored.IsZero() {
		return
	}
	one.stored = time.Now()
	one.last = one.stored
	c.part(one.ctx, "store", one.decoded, one.stored)
}

// delivery returns the function to call when a change has been written to the client of a
// watch with a span, nil if the change is not followed.
func (c *changes) delivery(
	cluster string, r schema.GroupResource, version uint64, watch trace.SpanContext,
) (delivered func()) {
	key := changeKey{cluster, r, version}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed[key] == nil {
		return nil
	}
	return func() { c.delivered(key, watch) }
}

// delivered records that a change was written to the client of a watch.
func (c *changes) delivered(key changeKey, watch trace.SpanContext) {
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
	if watch.IsSampled() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: watch}))
	}
	c.part(one.ctx, "deliver", began, one.last, opts...)
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
