// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"log/slog"

	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/tracing"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica"
)

// tracingOptions are the settings of the traces.
type tracingOptions struct {
	endpoint       string
	ratePerMillion int
}

func (o *tracingOptions) declare(keys *config.Set) {
	keys.String(&o.endpoint, "tracing.endpoint", "tracing-endpoint", "", "the `URL` of an OpenTelemetry collector that takes OTLP over HTTP, such as http://localhost:4318 (default: no traces)")
	keys.Int(&o.ratePerMillion, "tracing.samplingRatePerMillion", "tracing-sampling-rate-per-million", 10_000, "how many of a million requests and of a million changes to trace").
		AtLeast(0, "use 0 to trace only what trusted callers ask for")
}

func (o *tracingOptions) validate() error {
	if o.endpoint == "" {
		return nil
	}
	if err := tracing.Validate(o.endpoint); err != nil {
		return config.About("tracing-endpoint", "--tracing-endpoint: %v", err)
	}
	return nil
}

// open returns the tracing, nil if there is none.
func (o *tracingOptions) open(ctx context.Context, logger *slog.Logger) (*tracing.Tracing, error) {
	if o.endpoint == "" {
		return nil, nil
	}
	return tracing.New(ctx, tracing.Options{Endpoint: o.endpoint, RatePerMillion: o.ratePerMillion, Version: version(), Logger: logger})
}

// traceInto sets the hooks of a tracing. An interface with a nil pointer would not be nil.
func traceInto(t *tracing.Tracing, f *fleet.Options, r *replica.Options) {
	if t == nil {
		return
	}
	if f != nil {
		f.Trace = t
	}
	if r != nil {
		r.Trace, r.Deliveries = t.Request, t
	}
}

// droppedSpans returns the function that counts the dropped spans, nil without a tracing.
func droppedSpans(t *tracing.Tracing) func() uint64 {
	if t == nil {
		return nil
	}
	return t.Dropped
}
