// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package tracing sends OpenTelemetry traces to a collector. It traces requests that the
// program answers, requests that it sends to clusters, and changes, from the moment they are
// read from a connection until they are delivered to watches.
//
// # Guarantees
//
// Only a sample is traced. Only the owner and members of system:masters and
// system:monitoring can force a trace, together at most 10 per second with bursts of 50. No
// span has a token, a header, a query or the content of an object.
//
// # What blocks
//
// Only [Tracing.Close] waits for the collector, for at most 5 s. Spans that the collector does
// not accept in time are dropped and counted.
//
// # Bounds and ownership
//
// At most 2,048 spans wait in the queue, and 512 more in the batch that is being sent. At most
// 256 changes are followed at once. Each span or change takes about 2 KB. The times at which
// watches were last read take up to 40 MB: 200,000 of 200 bytes.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/timer"
)

const (
	// closeTimeout is how long Close waits for the collector.
	closeTimeout = 5 * time.Second
)

// Options configure a [Tracing].
type Options struct {
	// Endpoint is the URL of the collector, such as http://localhost:4318. Without a path it is
	// that of the OTLP protocol, /v1/traces.
	Endpoint string
	// RatePerMillion is how many of a million requests and changes are traced.
	RatePerMillion int
	// Version is that of the program.
	Version string
	// Logger receives the errors of the collector, at most one a minute.
	Logger *slog.Logger
}

// Tracing makes spans and sends them to a collector. All methods are safe for concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	sample
	queue   *queue
	forced  *rate.Limiter
	changes changes
	reads   reads
}

// Validate returns an error if an endpoint is not the URL of a collector.
func Validate(endpoint string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return errors.New("not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return errors.New("use the URL of an OTLP collector, such as http://localhost:4318")
	case u.User != nil:
		return errors.New("the URL has credentials: set them in OTEL_EXPORTER_OTLP_HEADERS")
	}
	return nil
}

// New returns a tracing that sends spans to a collector. It does not connect yet. The caller
// runs [Tracing.Run] while it is used, and calls Close after that.
func New(ctx context.Context, opts Options) (*Tracing, error) {
	u, err := url.Parse(opts.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing: endpoint: %w", err)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "watershed"),
			attribute.String("service.version", opts.Version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // the queue logs the errors of the collector
	t := &Tracing{
		queue: newQueue(exporter, opts.Logger), forced: rate.NewLimiter(forcedRate, forcedBurst),
		sample: sample{rate: uint32(min(max(opts.RatePerMillion, 0), million))},
	}
	t.provider = sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(chosen{})), sdk.WithResource(about),
		sdk.WithSpanProcessor(t.queue))
	t.tracer = t.provider.Tracer("github.com/watershed-project/watershed")
	t.changes.init(&t.sample, &t.reads)
	return t, nil
}

// Run ends the traces of changes that are not delivered any more, until ctx ends.
func (t *Tracing) Run(ctx context.Context) error {
	for timer.Sleep(ctx, sweepEvery) == nil {
		t.changes.sweep(time.Now().Add(-followFor))
	}
	t.changes.sweep(time.Time{})
	return nil
}

// Close sends the spans that are waiting, for at most closeTimeout.
func (t *Tracing) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // the queue has logged the error
}

// Dropped returns how many spans were dropped because the collector did not take them.
func (t *Tracing) Dropped() uint64 { return t.queue.dropped.Load() }

// Wrap is part of [fleet.Trace].
func (t *Tracing) Wrap(cluster string, next http.RoundTripper) http.RoundTripper {
	return &transport{&t.sample, &t.reads, cluster, next}
}

// Arrived is part of [fleet.Trace].
func (t *Tracing) Arrived(cluster string, r schema.GroupResource, version uint64) {
	t.changes.arrived(cluster, r, version)
}

// Active is part of [fleet.Trace] and [replica.DeliveryTrace].
func (t *Tracing) Active() bool { return t.changes.open.Load() > 0 }

// Stored is part of [fleet.Trace].
func (t *Tracing) Stored(cluster string, r schema.GroupResource, version uint64) {
	t.changes.stored(cluster, r, version)
}
