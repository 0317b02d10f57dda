// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package exposition

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/metrics"
	"github.com/watershed-project/watershed/metrics/serving"
)

// programMetrics are the metrics that define has defined.
var programMetrics []*metrics.Definition

// define defines a metric of the program.
func define(kind metrics.Kind, name, help string, labels ...string) *metrics.Definition {
	d := metrics.Define(kind, name, help, labels...)
	programMetrics = append(programMetrics, d)
	return d
}

// The metrics of the program, besides those of the fleet and the replica.
var (
	build = define(metrics.Gauge, "watershed_build_info",
		"Always 1. The label has the version of the program.", "version")
	serverProblems = define(metrics.Gauge, "watershed_server_problems",
		"1 for each problem of the server itself, by reason: ConfigurationRejected, SourceUnreadable, "+
			"HomeMissing, LeaseNotRenewed, LeaseIgnored, VersionsAhead, ReplicasDisagree or PeerUnreachable. There is "+
			"no series without a problem.", "reason")
	authentications = define(metrics.Counter, "watershed_authentications_total",
		"Requests by the result of authentication: success, failure (401), limited (429) or error.", "result")
	authorizations = define(metrics.Counter, "watershed_authorizations_total",
		"Authenticated requests by decision: allowed, denied (403), limited (429) or error. Requests that are "+
			"passed on are not counted, because their cluster decides.", "decision")
	tokenChecks = define(metrics.Counter, "watershed_token_checks_total",
		"Bearer tokens that callers have sent, by check: cached, reviewed by the cluster, or limited (429).", "result")
	reviews = define(metrics.Counter, "watershed_access_reviews_total",
		"Access decisions that a cluster has to make, by result: cached, shared with another request, reviewed, "+
			"failed, or refused because too many reviews waited.", "result")
	reviewBytes = define(metrics.Gauge, "watershed_access_review_cache_bytes",
		"Memory of the cached access decisions.")
	localDecisions = define(metrics.Counter, "watershed_local_rbac_decisions_total",
		"Access decisions for clusters of --local-rbac, by result: local, or reviewed by the cluster.", "result")
	disagreements = define(metrics.Counter, "watershed_local_rbac_disagreements_total",
		"Decisions of --local-rbac that the cluster has contradicted.")
	inFlight = define(metrics.Gauge, "watershed_inflight_units",
		"Cost of the requests that are being answered, in units of work.")
	waiting = define(metrics.Gauge, "watershed_waiting_requests",
		"Requests that wait until others are answered.")
	admittedWatches = define(metrics.Gauge, "watershed_admitted_watches",
		"Watches of all users that are open, or wait to be opened.")
	activeUsers = define(metrics.Gauge, "watershed_active_users",
		"Users that have a request in progress or a watch.")
	rejected = define(metrics.Counter, "watershed_rejected_requests_total",
		"Requests that were refused with 429 because the server was busy, by reason: full (too many waited), late "+
			"(it waited too long), canceled (by the client) or watches (too many).", "reason")
	auditEvents = define(metrics.Counter, "watershed_audit_events_total",
		"Audit events: written, or dropped because the queue was full or the disk failed.", "result")
	memoryLimit = define(metrics.Gauge, "watershed_memory_limit_bytes",
		"Memory that the process may use. There is no series without a limit.")
	memoryUsed = define(metrics.Gauge, "watershed_memory_used_bytes",
		"Memory that counts against the limit: the live heap, and other memory that the process needs.")
	memoryPressure = define(metrics.Gauge, "watershed_memory_pressure",
		"What the process gives up because of the memory limit: 0 nothing, 1 most of the caches, 2 also most of the "+
			"history, 3 also further resources, 4 also further objects.")
	spansDropped = define(metrics.Counter, "watershed_trace_spans_dropped_total",
		"Spans that were dropped, because the collector did not accept them. There is no series without tracing.")
	storedChanges = define(metrics.Counter, "watershed_storage_changes_total",
		"Changes of objects that were written to files. Without --data-dir there is no series of storage.")
	storedBytes = define(metrics.Counter, "watershed_storage_written_bytes_total",
		"Bytes that were written to files.")
	storageQueued = define(metrics.Gauge, "watershed_storage_queued_bytes",
		"Bytes of changes that wait to be written to files.")
	storageErrors = define(metrics.Counter, "watershed_storage_errors_total",
		"Failed operations on files.")
	storageDropped = define(metrics.Counter, "watershed_storage_dropped_total",
		"Times that the waiting changes of a resource were dropped, because the disk failed or was too slow. The "+
			"complete state is written instead, later.")
	storageBehind = define(metrics.Gauge, "watershed_storage_behind_resources",
		"Resources whose files are behind until their complete state is written.")
	groupSlot = define(metrics.Gauge, "watershed_group_slot",
		"Slot of the Lease that this replica has. Without --replica-group there is no series of the group, and "+
			"without a Lease only watershed_group_peers.")
	groupLeaseAge = define(metrics.Gauge, "watershed_group_lease_age_seconds",
		"Time since the last acknowledged renewal of the Lease was sent.")
	groupBound = define(metrics.Gauge, "watershed_group_bound_seconds",
		"How far the bound in the Lease, below which versions of /fleet are, is ahead of the group cluster's time.")
	groupAhead = define(metrics.Gauge, "watershed_group_versions_ahead_seconds",
		"How far the newest version of /fleet that a client has received is ahead of the group cluster's time.")
	groupSkew = define(metrics.Gauge, "watershed_group_clock_skew_seconds",
		"How far the clock of the group cluster is ahead of the one of this machine.")
	groupPeers = define(metrics.Gauge, "watershed_group_peers",
		"Other live replicas of the group.")
	peers = define(metrics.Gauge, "watershed_peers",
		"Other replicas of the group, by state: connected, or unreachable in one direction or both. Without "+
			"--group-listen there is no series of other replicas.", "state")
	peerNotes = define(metrics.Counter, "watershed_peer_notes_total",
		"Writes that were passed on, by result: acknowledged by all other replicas before the response, or "+
			"unacknowledged.", "result")
	peerReceived = define(metrics.Counter, "watershed_peer_notes_received_total",
		"Notes of writes from other replicas, by result: accepted or refused.", "result")
	peerLag = define(metrics.Gauge, "watershed_peer_lag_seconds",
		"For how long another replica has not reached a version of a cluster that this replica has, although it "+
			"says that the cluster is live. It is the largest of all clusters and replicas.")
	peerComparisons = define(metrics.Counter, "watershed_peer_comparisons_total",
		"Comparisons of a copy with that of another replica at one version, by result: equal, different, or failed "+
			"without a result.", "result")
	auditPending = define(metrics.Gauge, "watershed_audit_pending_events",
		"Audit events that wait to be written.")
)

// Definitions returns all metrics of the program that begin with watershed_, sorted by name.
func Definitions() []*metrics.Definition {
	all := slices.Concat(metrics.FleetDefinitions(), serving.Definitions(), programMetrics)
	slices.SortFunc(all, func(a, b *metrics.Definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// collector exports the work of access control, of the limiter and of the audit log.
type collector struct{ of Sources }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) { metrics.Describe(to, programMetrics) }

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	sink := metrics.Sink(to)
	sink.Put(build, 1, c.of.Version)
	reasons := map[string]bool{}
	for _, p := range c.of.Problems() {
		reasons[p.Reason] = true
	}
	for reason := range reasons {
		sink.Put(serverProblems, 1, reason)
	}
	c.access(sink)
	c.memory(sink)
	c.storage(sink)
	c.group(sink)
	if c.of.Tracing != nil {
		sink.Count(spansDropped, c.of.Tracing.Dropped())
	}
	c.peers(sink)
	l := c.of.Limiter.Stats()
	sink.Put(inFlight, float64(l.InFlight))
	sink.Put(waiting, float64(l.Waiting))
	sink.Put(admittedWatches, float64(l.Watches))
	sink.Put(activeUsers, float64(l.Users))
	sink.Count(rejected, l.Rejected.Full, "full")
	sink.Count(rejected, l.Rejected.Late, "late")
	sink.Count(rejected, l.Rejected.Canceled, "canceled")
	sink.Count(rejected, l.Rejected.Watches, "watches")
	if c.of.Audit != nil {
		a := c.of.Audit.Stats()
		sink.Count(auditEvents, a.Written, "written")
		sink.Count(auditEvents, a.Dropped, "dropped")
		sink.Put(auditPending, float64(a.Pending))
	}
}

// memory sends the metrics of the memory limit.
func (c *collector) memory(sink metrics.Sink) {
	if c.of.Budget == nil {
		return
	}
	b := c.of.Budget.Stats()
	sink.Put(memoryLimit, float64(b.Limit))
	sink.Put(memoryUsed, float64(b.Used))
	sink.Put(memoryPressure, float64(b.Pressure))
}

// storage sends the metrics of the files.
func (c *collector) storage(sink metrics.Sink) {
	if c.of.Storage == nil {
		return
	}
	s := c.of.Storage.Stats()
	sink.Count(storedChanges, uint64(s.Changes))
	sink.Count(storedBytes, uint64(s.Bytes))
	sink.Put(storageQueued, float64(s.Queued))
	sink.Count(storageErrors, s.Errors)
	sink.Count(storageDropped, s.Dropped)
	sink.Put(storageBehind, float64(s.Behind))
}

// group sends the metrics of the replica group.
func (c *collector) group(sink metrics.Sink) {
	if c.of.Group == nil {
		return
	}
	s := c.of.Group.Status()
	sink.Put(groupPeers, float64(len(s.Peers)))
	if s.Owned {
		sink.Put(groupSlot, float64(s.Slot))
		sink.Put(groupLeaseAge, s.Age)
		sink.Put(groupBound, s.Bound)
		sink.Put(groupAhead, s.Ahead)
		sink.Put(groupSkew, s.ClockSkew)
	}
}

// peers sends the metrics of other replicas.
func (c *collector) peers(sink metrics.Sink) {
	if c.of.Peers == nil {
		return
	}
	s := c.of.Peers.Stats()
	sink.Put(peers, float64(s.Connected), "connected")
	sink.Put(peers, float64(s.Unreachable), "unreachable")
	sink.Count(peerNotes, s.Acknowledged, "acknowledged")
	sink.Count(peerNotes, s.Unacknowledged, "unacknowledged")
	sink.Count(peerReceived, s.Accepted, "accepted")
	sink.Count(peerReceived, s.Refused, "refused")
	copies := c.of.Copies.Stats()
	sink.Put(peerLag, copies.Lag.Seconds())
	sink.Count(peerComparisons, copies.Equal, "equal")
	sink.Count(peerComparisons, copies.Different, "different")
	sink.Count(peerComparisons, copies.Failed, "failed")
}

// access sends the metrics of access control.
func (c *collector) access(sink metrics.Sink) {
	t := c.of.Access.Totals()
	outcomes := func(d *metrics.Definition, o access.Outcomes, accepted, refused string) {
		sink.Count(d, o.Accepted, accepted)
		sink.Count(d, o.Refused, refused)
		sink.Count(d, o.Limited, "limited")
		sink.Count(d, o.Failed, "error")
	}
	outcomes(authentications, t.Authentications, "success", "failure")
	outcomes(authorizations, t.Authorizations, "allowed", "denied")
	sink.Count(tokenChecks, t.Tokens.Hits, "cached")
	sink.Count(tokenChecks, t.Tokens.Checks, "reviewed")
	sink.Count(tokenChecks, t.Tokens.Limited, "limited")
	sink.Count(reviews, t.Reviews.Hits, "cached")
	sink.Count(reviews, t.Reviews.Joined, "shared")
	sink.Count(reviews, t.Reviews.Reviews, "reviewed")
	sink.Count(reviews, t.Reviews.Failures, "failed")
	sink.Count(reviews, t.Reviews.Refused, "refused")
	sink.Put(reviewBytes, float64(t.Reviews.Bytes))
	sink.Count(localDecisions, t.LocalDecisions, "local")
	sink.Count(localDecisions, t.LocalReviews, "reviewed")
	sink.Count(disagreements, t.Disagreements)
}
