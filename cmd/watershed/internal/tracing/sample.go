// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"math/rand/v2"

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

// forcedRate is how many traces per second callers can force, and forcedBurst how many at once.
const forcedRate, forcedBurst = 10, 50
