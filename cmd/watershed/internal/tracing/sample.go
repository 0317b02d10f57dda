// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// million is the sampling rate at which everything is traced.
const million = 1_000_000

// sample makes spans for a part of the requests and changes.
type sample struct {
	tracer trace.Tracer
	// rate is how many of a million are traced.
	rate uint32
}

// draw reports whether a new trace belongs to the sample.
func (s *sample) draw() bool { return rand.Uint32N(million) < s.rate }

// chosen is the sampler of traces without a parent: package tracing starts such a trace only
// after draw has chosen it.
type chosen struct{}

type unchosenKey struct{}

// ShouldSample implements [sdk.Sampler].
func (chosen) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	r := sdk.SamplingResult{Decision: sdk.RecordAndSample}
	if p.ParentContext.Value(unchosenKey{}) != nil {
		r.Decision = sdk.Drop
	}
	return r
}

// Description implements [sdk.Sampler].
func (chosen) Description() string { return "Watershed" }

// propagator reads and writes the header traceparent. Baggage is neither read nor written.
var propagator propagation.TraceContext

// remote returns the span that a request names as its parent.
func remote(h http.Header) trace.SpanContext {
	return trace.SpanContextFromContext(propagator.Extract(context.Background(), propagation.HeaderCarrier(h)))
}

// bucket limits how often something may happen.
type bucket struct{ next atomic.Int64 }

const (
	// forcedRate is how many traces per second callers can force, and forcedBurst how many at
	// once.
	forcedRate, forcedBurst = 10, 50
)

// take reports whether it may happen now.
func (b *bucket) take(now time.Time) bool {
	const step, burst = int64(time.Second) / forcedRate, int64(time.Second) / forcedRate * forcedBurst
	for {
		next, at := b.next.Load(), now.UnixNano()
		if next-at > burst-step {
			return false
		}
		if b.next.CompareAndSwap(next, max(next, at)+step) {
			return true
		}
	}
}
