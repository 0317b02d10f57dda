// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package serving exports the requests to a replica to Prometheus. It is separate from
// package metrics, so that programs without a replica do not link it.
//
// # Guarantees
//
// Requests have the labels of kube-apiserver's apiserver_request_total. Their resources are
// those of discovery: all others are counted as the resource "other". There are at most
// 4,096 combinations of labels. The series of a cluster end when it leaves the fleet.
//
// # What blocks
//
// Nothing blocks.
//
// # Bounds and ownership
//
// Nothing is kept between scrapes.
package serving

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed/metrics"
	"github.com/watershed-project/watershed/replica"
)

// The metrics of a replica.
var (
	requests = metrics.Define(metrics.Counter, "watershed_requests_total",
		"Requests that were answered, with the labels of apiserver_request_total. The resource is \"other\" if no "+
			"cluster has it. A watch is counted when it ends.",
		"verb", "group", "version", "resource", "subresource", "scope", "code")
	durations = metrics.Define(metrics.Histogram, "watershed_request_duration_seconds",
		"Time until a request was answered. Watches and other connections that stay open are not counted.",
		"verb", "scope")
	bytes = metrics.Define(metrics.Counter, "watershed_response_bytes_total",
		"Bytes of responses by verb: GET, LIST, WATCH or OTHER.", "verb")
	saved = metrics.Define(metrics.Counter, "watershed_upstream_requests_saved_total",
		"Requests that the copy has answered instead of a cluster. The cluster is empty for requests below /fleet, "+
			"each of which would otherwise be one request to every cluster.", "cluster", "verb")
	passed = metrics.Define(metrics.Counter, "watershed_passed_requests_total",
		"Requests that were sent on to the cluster, which has answered them: consistent reads, and requests that "+
			"the copy cannot answer.", "cluster")
	watchers = metrics.Define(metrics.Gauge, "watershed_watchers",
		"Open watches of clients. The cluster is empty for watches below /fleet.", "cluster")
	open = metrics.Define(metrics.Gauge, "watershed_open_responses",
		"Responses that are being written, watches included.")
	blocked = metrics.Define(metrics.Gauge, "watershed_blocked_responses",
		"Responses whose client has read nothing for more than a second.")
	blockedFor = metrics.Define(metrics.Gauge, "watershed_blocked_response_seconds",
		"Time since the slowest client has read anything of its response.")
	cut = metrics.Define(metrics.Counter, "watershed_clients_cut_total",
		"Connections that were ended because the client did not read its response.")
	expired = metrics.Define(metrics.Counter, "watershed_watches_expired_total",
		"Watches that were ended because the history no longer had the next changes for the client.")
)

var all = []*metrics.Definition{
	requests, durations, bytes, saved, passed, watchers, open, blocked, blockedFor, cut, expired,
}

// Definitions returns the metrics of the collector.
func Definitions() []*metrics.Definition { return append([]*metrics.Definition(nil), all...) }

// Collector exports the requests to a replica to Prometheus.
type Collector struct{ server *replica.Server }

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector, to be registered with the program's other collectors.
func NewCollector(s *replica.Server) *Collector { return &Collector{s} }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) { metrics.Describe(to, all) }

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	sink, s := metrics.Sink(to), c.server.Stats()
	for r, n := range s.Requests {
		sink.Count(requests, n, r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Scope, strconv.Itoa(r.Code))
	}
	for r, took := range s.Durations {
		sink.Distribution(durations, took, r.Verb, r.Scope)
	}
	for verb, n := range s.Bytes {
		sink.Count(bytes, n, verb)
	}
	for name, at := range s.Clusters {
		for verb, n := range at.Saved {
			sink.Count(saved, n, name, verb)
		}
		sink.Count(passed, at.Passed, name)
		sink.Put(watchers, float64(at.Watches), name)
	}
	sink.Put(open, float64(s.Open))
	sink.Put(blocked, float64(s.Blocked))
	sink.Put(blockedFor, s.BlockedFor.Seconds())
	sink.Count(cut, s.Cut)
	sink.Count(expired, s.Expired)
}
