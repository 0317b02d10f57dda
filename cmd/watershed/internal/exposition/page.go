// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package exposition serves the metrics of the program to Prometheus: those of the fleet,
// the replica, access control, the limiter and the audit log, of the process and of the Go
// runtime.
//
// # Guarantees
//
// The number of series is bounded: see [Definitions]. A scrape reads counters, and never the
// mirrored objects.
//
// # What blocks
//
// At most two scrapes run at once. A third one gets a 503.
//
// # Bounds and ownership
//
// Nothing is kept between scrapes. A scrape of 1,000 clusters with 60 resources each takes
// about 100 MB until it has been sent.
package exposition

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/watershed-project/watershed/metrics"
	"github.com/watershed-project/watershed/metrics/serving"
)

// maxScrapes is how many scrapes may run at once. Each takes the processor and memory that
// requests need.
const maxScrapes = 2

// Page is the handler of /metrics. The replica needs it before the sources exist, so it
// answers with 503 until Open is called.
type Page struct{ handler http.Handler }

// Open sets the sources. It is called once, before the first request.
func (p *Page) Open(s Sources) error {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		metrics.NewFleetCollector(s.Fleet), serving.NewCollector(s.Replica), &collector{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	logger := cmp.Or(s.Logger, slog.Default())
	p.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelError),
		MaxRequestsInFlight: maxScrapes,
	})
	return nil
}

// ServeHTTP answers with the metrics.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.handler == nil {
		http.Error(w, "the metrics are not available yet", http.StatusServiceUnavailable)
		return
	}
	p.handler.ServeHTTP(w, r)
}
