// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// queueSpans is how many spans wait for the collector at most, and batchSpans how many are
	// sent at once.
	queueSpans, batchSpans = 2048, 512
	// exportTimeout is how long the collector may take for one export.
	exportTimeout = 5 * time.Second
	// logEvery is the shortest time between two log lines about the collector.
	logEvery = time.Minute
	// sendEvery is how long a span waits for others.
	sendEvery = time.Second
)

// queue holds the spans that wait for the collector. The SDK's own batch processor drops spans
// too, but it does not count them.
type queue struct {
	exporter sdk.SpanExporter
	logger   *slog.Logger
	dropped  atomic.Uint64
	spans    chan sdk.ReadOnlySpan
	// ending is closed by Shutdown, and ended when the sender has returned.
	ending, ended chan struct{}
	// ctx ends when the collector has no time left.
	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once
	logged time.Time
}

// newQueue returns a queue, which has a goroutine until Shutdown.
func newQueue(e sdk.SpanExporter, logger *slog.Logger) *queue {
	q := &queue{
		exporter: e,
		logger:   logger,
		spans:    make(chan sdk.ReadOnlySpan, queueSpans),
		ending:   make(chan struct{}),
		ended:    make(chan struct{}),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	go q.run()
	return q
}

// OnStart implements [sdk.SpanProcessor].
func (*queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd adds a span, or drops it if the queue is full.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	select {
	case q.spans <- s:
	default:
		q.dropped.Add(1)
	}
}

// run sends batches until Shutdown, and then what is left.
func (q *queue) run() {
	defer close(q.ended)
	ticker := time.NewTicker(sendEvery)
	defer ticker.Stop()
	var batch []sdk.ReadOnlySpan
	for {
		select {
		case s := <-q.spans:
			if batch = append(batch, s); len(batch) >= batchSpans {
				batch = q.send(batch)
			}
		case <-ticker.C:
			batch = q.send(batch)
		case <-q.ending:
			for len(q.spans) > 0 {
				if batch = append(batch, <-q.spans); len(batch) >= batchSpans {
					batch = q.send(batch)
				}
			}
			q.send(batch)
			return
		}
	}
}

// send sends a batch, and returns an empty one.
func (q *queue) send(batch []sdk.ReadOnlySpan) []sdk.ReadOnlySpan {
	if len(batch) == 0 {
		return batch
	}
	ctx, cancel := context.WithTimeout(q.ctx, exportTimeout)
	defer cancel()
	if err := q.exporter.ExportSpans(ctx, batch); err != nil {
		q.dropped.Add(uint64(len(batch)))
		if now := time.Now(); now.Sub(q.logged) >= logEvery {
			q.logged = now
			q.logger.Warn("trace collector does not take spans: they are dropped", "dropped", q.dropped.Load(), "err",
				err)
		}
	}
	clear(batch)
	return batch[:0]
}

// ForceFlush implements [sdk.SpanProcessor].
func (*queue) ForceFlush(context.Context) error { return nil }

// Shutdown sends what is left until ctx ends.
func (q *queue) Shutdown(ctx context.Context) error {
	q.once.Do(func() { close(q.ending) })
	defer context.AfterFunc(ctx, q.cancel)()
	<-q.ended
	q.cancel()
	return q.exporter.Shutdown(ctx)
}
