// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/histogram"
	"github.com/watershed-project/watershed/reflector"
)

// The metrics of informers. Objects is also a metric of a fleet.
var (
	objects = Define(Gauge, "watershed_objects", "Objects that are kept.", "cluster", "resource")
	packed  = Define(Gauge, "watershed_objects_packed",
		"Objects that are kept packed (compressed).", "cluster", "resource")
	memory = Define(Gauge, "watershed_memory_bytes",
		"Memory of an informer, by part: objects, keys, indexes, log, dictionaries (shared ones are divided equally "+
			"among their informers, so a sum is right), or decoded for recently decoded objects.",
		"cluster", "resource", "part")

	informerStaleness = Define(Gauge, "watershed_informer_staleness_seconds",
		"For how long the copy of an informer has not been current. 0 while it is current.", "cluster", "resource")
	informerQueued = Define(Gauge, "watershed_informer_queued_changes",
		"Changes that an informer has received and that wait to be stored.", "cluster", "resource")
	informerRelists = Define(Counter, "watershed_informer_relists_total",
		"Complete lists that an informer has read, by cause. There is no series for a cause that has not occurred.",
		"cluster", "resource", "cause")
	informerEvents = Define(Counter, "watershed_informer_events_total",
		"Watch events that an informer has received, by type: added, updated or deleted.", "cluster", "resource",
		"type")
	informerFailures = Define(Counter, "watershed_informer_failures_total",
		"Requests of an informer that failed, by reason. There is no series for a reason that has not occurred.",
		"cluster", "resource", "reason")
	informerDropped = Define(Counter, "watershed_informer_dropped_objects_total",
		"Objects whose new state an informer has left out, because it could not be read, had no key, or was refused "+
			"by the transform.", "cluster", "resource")
	informerBad = Define(Counter, "watershed_informer_undecodable_states_total",
		"States of objects that a reader needed and that could not be decoded.", "cluster", "resource")
	informerDelay = Define(Histogram, "watershed_informer_event_delay_seconds",
		"Time from the arrival of the first event of a batch until the batch is stored.", "cluster", "resource")

	valuesKept = Define(Gauge, "watershed_values_kept",
		"Decoded values that an informer keeps because they are read again in time.", "cluster", "resource")
	valueBytes = Define(Gauge, "watershed_values_kept_bytes",
		"About the size of these values. It is part of the decoded memory.", "cluster", "resource")
	valueLifetime = Define(Gauge, "watershed_values_lifetime_seconds",
		"How long a value is kept that is not read.", "cluster", "resource")
	valueHits = Define(Counter, "watershed_values_hits_total",
		"Reads that found a decoded value, counted by a sample.", "cluster", "resource")
	valueDecodes = Define(Counter, "watershed_values_decoded_total", "Values that an informer has decoded.",
		"cluster", "resource")

	handlerLag = Define(Gauge, "watershed_handler_lag_changes",
		"Changes that wait for a handler.", "cluster", "resource", "handler")
	handlerBusy = Define(Gauge, "watershed_handler_busy_seconds",
		"For how long a handler has been processing the changes that it received last. 0 while it waits.",
		"cluster", "resource", "handler")
	handlerCalls = Define(Counter, "watershed_handler_calls_total",
		"Calls of a handler that have returned.", "cluster", "resource", "handler")
	handlerPanics = Define(Counter, "watershed_handler_panics_total", "Calls of a handler that panicked.", "cluster",
		"resource", "handler")
	handlerExpired = Define(Counter, "watershed_handler_expirations_total",
		"Times that a handler was too slow for the window, and received the differences to the newest state instead "+
			"of every change.", "cluster", "resource", "handler")
)

var informerMetrics = []*Definition{
	objects, packed, memory, informerStaleness, informerQueued, informerRelists, informerEvents, informerFailures,
	informerDropped, informerBad, informerDelay,
	valuesKept, valueBytes, valueLifetime, valueHits, valueDecodes,
	handlerLag, handlerBusy, handlerCalls, handlerPanics, handlerExpired,
}

// InformerDefinitions returns the metrics of [Collector].
func InformerDefinitions() []*Definition { return slices.Clone(informerMetrics) }

// Collector exports the memory and the work of a report's informers to Prometheus.
type Collector struct{ report *watershed.Report }

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector, to be registered with the program's other collectors.
func NewCollector(report *watershed.Report) *Collector { return &Collector{report} }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) { Describe(to, informerMetrics) }

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	sink, now := Sink(to), time.Now()
	for _, i := range added(c.report.Informers()) {
		at := []string{i.Cluster, i.Resource}
		sink.Put(objects, float64(i.Objects), at...)
		sink.Put(packed, float64(i.Packed), at...)
		for _, part := range []struct {
			name  string
			bytes int64
		}{
			{"objects", i.ObjectBytes}, {"keys", i.KeyBytes}, {"indexes", i.IndexBytes}, {"log", i.LogBytes},
			{"dictionaries", i.DictionaryBytes}, {"decoded", i.DecodedBytes},
		} {
			sink.Put(memory, float64(part.bytes), i.Cluster, i.Resource, part.name)
		}
		sink.Put(informerStaleness, Age(now, i.Status.Reflector.StaleSince), at...)
		sink.Put(informerQueued, float64(i.Status.Queued), at...)
		sink.counts(countMetrics{informerRelists, informerFailures, informerEvents, informerDropped}, &i.Counts, at...)
		if i.Counts.Delay.Bounds != nil {
			sink.Distribution(informerDelay, i.Counts.Delay, at...)
		}
		sink.Count(informerBad, i.Status.Undecodable, at...)
		sink.values(&i.Values, at)
		sink.handlers(i.Status.Handlers, now, at)
	}
}

// countMetrics are the metrics of the work of an informer, or of the informers of a cluster.
type countMetrics struct{ relists, failures, events, dropped *Definition }

// counts sends the work with the labels at. Causes and reasons that have not occurred are left out.
func (s Sink) counts(to countMetrics, n *watershed.Counts, at ...string) {
	with := func(label string) []string { return append(slices.Clone(at), label) }
	for c, count := range n.Lists {
		if count > 0 {
			s.Count(to.relists, count, with(reflector.Cause(c).String())...)
		}
	}
	for r, count := range n.Failures {
		if count > 0 { // labels have no spaces
			s.Count(to.failures, count, with(strings.ReplaceAll(reflector.Reason(r).String(), " ", "_"))...)
		}
	}
	if n.Silent > 0 {
		s.Count(to.failures, n.Silent, with("silent")...)
	}
	s.Count(to.events, n.Added, with("added")...)
	s.Count(to.events, n.Updated, with("updated")...)
	s.Count(to.events, n.Deleted, with("deleted")...)
	s.Count(to.dropped, n.Dropped, at...)
}

// values sends the counts of decoded values, unless nothing was decoded.
func (s Sink) values(v *watershed.ValueStats, at []string) {
	if v.Decodes == 0 {
		return
	}
	s.Put(valuesKept, float64(v.Kept), at...)
	s.Put(valueBytes, float64(v.KeptBytes), at...)
	s.Put(valueLifetime, v.Lifetime.Seconds(), at...)
	s.Count(valueHits, v.Hits, at...)
	s.Count(valueDecodes, v.Decodes, at...)
}

// handlers sends the progress of handlers. Those with the same name are added up.
func (s Sink) handlers(all []watershed.HandlerStatus, now time.Time, at []string) {
	for i := 0; i < len(all); {
		sum := all[i]
		for i++; i < len(all) && all[i].Name == sum.Name; i++ {
			h := all[i]
			sum.Behind = max(sum.Behind, h.Behind)
			if sum.BusySince.IsZero() || !h.BusySince.IsZero() && h.BusySince.Before(sum.BusySince) {
				sum.BusySince = h.BusySince
			}
			sum.Delivered += h.Delivered
			sum.Panics += h.Panics
			sum.Expired += h.Expired
		}
		labels := []string{at[0], at[1], sum.Name}
		s.Put(handlerLag, float64(sum.Behind), labels...)
		s.Put(handlerBusy, Age(now, sum.BusySince), labels...)
		s.Count(handlerCalls, sum.Delivered, labels...)
		s.Count(handlerPanics, sum.Panics, labels...)
		s.Count(handlerExpired, sum.Expired, labels...)
	}
}

// added adds up the informers that have the same labels, as Prometheus requires each series
// once. all must be sorted.
func added(all []watershed.InformerStats) []watershed.InformerStats {
	var sums []watershed.InformerStats
	for _, i := range all {
		if n := len(sums) - 1; n >= 0 && sums[n].Cluster == i.Cluster && sums[n].Resource == i.Resource {
			add(&sums[n], &i)
			continue
		}
		sums = append(sums, i)
	}
	return sums
}

// add adds an informer with the same labels. The staleness is that of the more stale one.
func add(sum, i *watershed.InformerStats) {
	sum.Objects += i.Objects
	sum.Packed += i.Packed
	sum.ObjectBytes += i.ObjectBytes
	sum.KeyBytes += i.KeyBytes
	sum.IndexBytes += i.IndexBytes
	sum.LogBytes += i.LogBytes
	sum.DictionaryBytes += i.DictionaryBytes
	sum.DecodedBytes += i.DecodedBytes
	sum.Values.Kept += i.Values.Kept
	sum.Values.KeptBytes += i.Values.KeptBytes
	sum.Values.Hits += i.Values.Hits
	sum.Values.Decodes += i.Values.Decodes
	sum.Values.Lifetime = max(sum.Values.Lifetime, i.Values.Lifetime)
	if since := i.Status.Reflector.StaleSince; sum.Status.Reflector.StaleSince.IsZero() ||
		!since.IsZero() && since.Before(sum.Status.Reflector.StaleSince) {
		sum.Status.Reflector.StaleSince = since
	}
	sum.Status.Queued += i.Status.Queued
	sum.Status.Undecodable += i.Status.Undecodable
	sum.Status.Handlers = mergeHandlers(sum.Status.Handlers, i.Status.Handlers)
	for c := range sum.Counts.Lists {
		sum.Counts.Lists[c] += i.Counts.Lists[c]
	}
	for r := range sum.Counts.Failures {
		sum.Counts.Failures[r] += i.Counts.Failures[r]
	}
	sum.Counts.Silent += i.Counts.Silent
	sum.Counts.Added += i.Counts.Added
	sum.Counts.Updated += i.Counts.Updated
	sum.Counts.Deleted += i.Counts.Deleted
	sum.Counts.Dropped += i.Counts.Dropped
	var delay histogram.Snapshot
	for _, d := range []histogram.Snapshot{sum.Counts.Delay, i.Counts.Delay} {
		if d.Bounds != nil {
			delay.Add(d)
		}
	}
	sum.Counts.Delay = delay
}

// mergeHandlers returns the handlers of two informers, sorted by name.
func mergeHandlers(a, b []watershed.HandlerStatus) []watershed.HandlerStatus {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b watershed.HandlerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
