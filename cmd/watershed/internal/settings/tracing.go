// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package settings

import (
	"context"
	"log/slog"

	"github.com/watershed-project/watershed/cmd/watershed/internal/build"
	"github.com/watershed-project/watershed/cmd/watershed/internal/config"
	"github.com/watershed-project/watershed/cmd/watershed/internal/tracing"
)

// Tracing are the settings of the traces.
type Tracing struct {
	endpoint       string
	ratePerMillion int
}

func (o *Tracing) declare(in config.Section) {
	in.String(&o.endpoint, "tracing.endpoint", "tracing-endpoint", "", "the `URL` of an OpenTelemetry collector "+
		"that takes OTLP over HTTP, such as http://localhost:4318 (default: no traces)")
	in.Int(&o.ratePerMillion, "tracing.samplingRatePerMillion", "tracing-sampling-rate-per-million", 10_000,
		"how many of a million requests and of a million changes to trace").
		AtLeast(0, "use 0 to trace only what trusted callers ask for")
}

func (o *Tracing) validate() error {
	if o.endpoint == "" {
		return nil
	}
	if err := tracing.Validate(o.endpoint); err != nil {
		return config.About("tracing-endpoint", "--tracing-endpoint: %v", err)
	}
	return nil
}

// Open returns the tracing, nil if there is none.
func (o *Tracing) Open(ctx context.Context, logger *slog.Logger) (*tracing.Tracing, error) {
	if o.endpoint == "" {
		return nil, nil
	}
	return tracing.New(ctx, tracing.Options{Endpoint: o.endpoint, RatePerMillion: o.ratePerMillion,
		Version: build.Version(), Logger: logger})
}
