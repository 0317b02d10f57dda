// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
)

// The metrics of a fleet. Verbs are those of kube-apiserver's metrics.
var (
	clusterState = Define(Gauge, "watershed_cluster_state",
		"1 for the state that a cluster is in: connecting, syncing, live or stale. There is no series for the other "+
			"states.", "cluster", "state")
	staleness = Define(Gauge, "watershed_staleness_seconds",
		"For how long the copy of a cluster has not been current; for a cluster that was never reached, the time "+
			"since it joined. 0 while the copy is current, and during the first list.", "cluster", "cause")
	resourceStale = Define(Gauge, "watershed_resource_staleness_seconds",
		"For how long the copy of a resource has not been current. There is no series while it is current.",
		"cluster", "resource", "cause")
	problems = Define(Gauge, "watershed_problems",
		"1 for each problem of a cluster, by the reason that watershed status prints. There is no series without a "+
			"problem.", "cluster", "reason")
	resources       = Define(Gauge, "watershed_resources", "Resources of a cluster that are mirrored.", "cluster")
	resourcesSynced = Define(Gauge, "watershed_resources_synced",
		"Mirrored resources of a cluster whose first list is complete.", "cluster")
	clusterMemory = Define(Gauge, "watershed_cluster_memory_bytes",
		"Memory of the copy of a cluster, by part: objects (with their keys, indexes and facets) or history.",
		"cluster", "part")
	resourceMemory = Define(Gauge, "watershed_resource_memory_bytes",
		"Memory of a resource in all clusters, by part: objects (with their keys and indexes), facets, history or "+
			"window. There is no series for facets without --facets.",
		"resource", "part")
	unknownFacets = Define(Gauge, "watershed_resource_unknown_facets",
		"Objects of a resource in all clusters of which a facet is unknown. There is no series without --facets.",
		"resource")
	sharedMemory = Define(Gauge, "watershed_shared_memory_bytes",
		"Memory that all clusters share, by part: dictionaries, decoded for recently decoded objects, or facets for "+
			"values of facets that objects share.", "part")
	relists = Define(Counter, "watershed_relists_total",
		"Complete lists of resources that were read, by cause: begun (the first list), expired, went_back, "+
			"not_found, lost_deletion, incomplete, watch_failed or requested. There is no series for a cause that "+
			"has not occurred.", "cluster", "cause")
	eventsTotal = Define(Counter, "watershed_events_total",
		"Watch events that were received, by type: added, updated or deleted.", "cluster", "type")
	eventDelay = Define(Histogram, "watershed_event_delay_seconds",
		"Time from the arrival of the first watch event of a batch until the batch is stored and readers are notified.",
		"cluster")
	failures = Define(Counter, "watershed_failures_total",
		"Lists, watches and checks that failed, by reason. There is no series for a reason that has not occurred.",
		"cluster", "reason")
	dropped = Define(Counter, "watershed_dropped_objects_total",
		"Objects whose new state is not in the copy, because it could not be read, had no key, or was refused by "+
			"the transform.", "cluster")
	restores = Define(Counter, "watershed_restores_total",
		"Times that a resource of a cluster had an older version than before. Usually etcd was restored from a "+
			"backup.", "cluster")
	queued = Define(Gauge, "watershed_queued_changes",
		"Changes that were received and wait to be stored.", "cluster")
	limitRefusals = Define(Counter, "watershed_limit_refusals_total",
		"Objects that were not read, because the cluster has reached a limit.", "cluster")
	upstreamRequests = Define(Counter, "watershed_upstream_requests_total",
		"Requests that Watershed has sent to a cluster to keep the copy current, by verb: GET (which includes "+
			"discovery), LIST or WATCH.", "cluster", "verb")
	upstreamFailed = Define(Counter, "watershed_upstream_request_failures_total",
		"Requests of watershed_upstream_requests_total that got an error or no response.", "cluster")
	upstreamBytes = Define(Counter, "watershed_upstream_response_bytes_total",
		"Bytes of the responses to watershed_upstream_requests_total, as they were sent, compressed or not.",
		"cluster", "verb")
	verifications = Define(Counter, "watershed_verifications_total",
		"Comparisons of the copy of a resource with its API server, by result: done or failed.", "cluster", "result")
	divergences = Define(Counter, "watershed_divergences_total",
		"Objects that a verification found to differ from the API server, by kind: missing, extra, stale, ahead or "+
			"wrong.", "cluster", "kind")
	repairs = Define(Counter, "watershed_repairs_total",
		"Resources that were listed again, because a verification had found differences.", "cluster")
	diverged = Define(Gauge, "watershed_diverged_resources",
		"Resources whose copy is known to differ from the API server.", "cluster")
	undecodable = Define(Counter, "watershed_undecodable_states_total",
		"States of objects that a reader needed and that could not be decoded.")
	listsRunning = Define(Gauge, "watershed_lists_running", "Lists that are being read from clusters.")
	listsWaiting = Define(Gauge, "watershed_lists_waiting",
		"Lists that wait for their turn.")
)

var fleetMetrics = []*Definition{
	objects, clusterState, staleness, resourceStale, problems, resources, resourcesSynced, clusterMemory,
	resourceMemory, unknownFacets, sharedMemory, relists, eventsTotal, eventDelay,
	failures, dropped, restores, queued, limitRefusals, upstreamRequests, upstreamFailed, upstreamBytes, verifications,
	divergences, repairs, diverged, undecodable, listsRunning, listsWaiting,
}

// FleetDefinitions returns the metrics of [FleetCollector].
func FleetDefinitions() []*Definition { return slices.Clone(fleetMetrics) }

// FleetCollector exports the state, the sizes and the work of a fleet to Prometheus. Its
// informers must not be in a [Collector] of the same registry.
type FleetCollector struct{ fleet *fleet.Fleet }

var _ prometheus.Collector = (*FleetCollector)(nil)

// NewFleetCollector returns a collector, to be registered with the program's other
// collectors.
func NewFleetCollector(f *fleet.Fleet) *FleetCollector { return &FleetCollector{f} }

// Describe implements [prometheus.Collector].
func (c *FleetCollector) Describe(to chan<- *prometheus.Desc) { Describe(to, fleetMetrics) }

// Collect implements [prometheus.Collector].
func (c *FleetCollector) Collect(to chan<- prometheus.Metric) {
	sink, now := Sink(to), time.Now()
	s := c.fleet.Stats()
	totals, dictionaries := resourceTotals{}, int64(0)
	for i := range s.Members {
		m := &s.Members[i]
		sink.member(m, totals, now)
		for j := range m.Resources {
			dictionaries += m.Resources[j].Memory.DictionaryBytes
		}
	}
	for at, bytes := range s.Windows {
		if sum := totals[at]; sum != nil {
			sum.window += bytes
		}
	}
	for _, sum := range totals {
		sink.Put(resourceMemory, float64(sum.objects), sum.name, "objects")
		if sum.facets > 0 {
			sink.Put(resourceMemory, float64(sum.facets), sum.name, "facets")
			sink.Put(unknownFacets, float64(sum.unknown), sum.name)
		}
		sink.Put(resourceMemory, float64(sum.history), sum.name, "history")
		sink.Put(resourceMemory, float64(sum.window), sum.name, "window")
	}
	sink.Put(sharedMemory, float64(dictionaries), "dictionaries")
	sink.Put(sharedMemory, float64(s.DecodedBytes), "decoded")
	if s.FacetValues > 0 {
		sink.Put(sharedMemory, float64(s.FacetValueBytes), "facets")
	}
	sink.Count(undecodable, s.Undecodable)
	sink.Put(listsRunning, float64(s.Lists))
	sink.Put(listsWaiting, float64(s.Waiting))
}

// resourceTotal is a resource in all clusters: its name, its memory, and the number of objects of
// which a facet is unknown.
type resourceTotal struct {
	name                             string
	objects, facets, history, window int64
	unknown                          int
}

// resourceTotals are the resources of a scrape.
type resourceTotals map[schema.GroupResource]*resourceTotal

// add adds the memory of a resource of one cluster, and returns the total.
func (t resourceTotals) add(r *fleet.ResourceStats) *resourceTotal {
	sum := t[r.Resource]
	if sum == nil {
		sum = &resourceTotal{name: r.Resource.String()}
		t[r.Resource] = sum
	}
	sum.objects += objectBytes(r)
	sum.facets += r.Memory.FacetBytes
	sum.unknown += r.Memory.UnknownFacets
	sum.history += r.HistoryBytes
	return sum
}

// objectBytes returns the memory of the objects of a resource, with what finds them.
func objectBytes(r *fleet.ResourceStats) int64 {
	return r.Memory.ObjectBytes + r.Memory.KeyBytes + r.Memory.IndexBytes
}

// member sends the metrics of a cluster, about 30 series and one for each resource, and adds
// its memory to the totals.
func (s Sink) member(m *fleet.MemberStats, totals resourceTotals, now time.Time) {
	s.Put(clusterState, 1, m.Name, m.State.String())
	s.Put(staleness, Age(now, m.StaleSince), m.Name, string(m.Cause))
	for _, reason := range m.Problems {
		s.Put(problems, 1, m.Name, reason)
	}
	s.Put(resources, float64(len(m.Resources)), m.Name)
	s.Put(resourcesSynced, float64(m.Synced), m.Name)
	var bytes, history int64
	for i := range m.Resources {
		r := &m.Resources[i]
		name := totals.add(r).name
		s.Put(objects, float64(r.Objects), m.Name, name)
		bytes += objectBytes(r) + r.Memory.FacetBytes
		history += r.HistoryBytes
		if !r.StaleSince.IsZero() {
			s.Put(resourceStale, Age(now, r.StaleSince), m.Name, name, string(r.Cause))
		}
	}
	s.Put(clusterMemory, float64(bytes), m.Name, "objects")
	s.Put(clusterMemory, float64(history), m.Name, "history")
	s.Put(queued, float64(m.Queued), m.Name)
	s.Count(limitRefusals, m.Refusals, m.Name)
	s.counts(countMetrics{relists, failures, eventsTotal, dropped}, &m.Counts, m.Name)
	s.Count(restores, m.Counts.Restores, m.Name)
	s.Distribution(eventDelay, m.Counts.Delay, m.Name)
	s.verification(m)
	s.Count(upstreamFailed, m.Traffic.Failed, m.Name)
	s.Count(upstreamRequests, m.Traffic.Get.Requests, m.Name, "GET")
	s.Count(upstreamRequests, m.Traffic.List.Requests, m.Name, "LIST")
	s.Count(upstreamRequests, m.Traffic.Watch.Requests, m.Name, "WATCH")
	s.Count(upstreamBytes, m.Traffic.Get.Bytes, m.Name, "GET")
	s.Count(upstreamBytes, m.Traffic.List.Bytes, m.Name, "LIST")
	s.Count(upstreamBytes, m.Traffic.Watch.Bytes, m.Name, "WATCH")
}

// verification sends the metrics of the comparisons of a cluster, if there were any.
func (s Sink) verification(m *fleet.MemberStats) {
	v := &m.Verification
	if v.Runs == 0 {
		return
	}
	s.Count(verifications, v.Runs-v.Failures, m.Name, "done")
	s.Count(verifications, v.Failures, m.Name, "failed")
	for kind, n := range map[string]uint64{
		"missing": v.Missing, "extra": v.Extra, "stale": v.Stale, "ahead": v.Ahead, "wrong": v.Wrong,
	} {
		s.Count(divergences, n, m.Name, kind)
	}
	s.Count(repairs, v.Repairs, m.Name)
	s.Put(diverged, float64(v.Diverged), m.Name)
}
