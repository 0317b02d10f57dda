// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package dashboard

// chosen selects the clusters of the variable.
const chosen = `{cluster=~"$cluster"}`

// perSecond returns the rate of a counter, summed by labels.
func perSecond(by, metric string) string {
	return "sum by (" + by + ") (rate(" + metric + "[$__rate_interval]))"
}

// quantile returns a quantile of a histogram by labels.
func quantile(q, by, metric string) string {
	return "histogram_quantile(" + q + ", sum by (" + by + ", le) (rate(" + metric + "[$__rate_interval])))"
}

// Rows returns the content of the dashboard.
func Rows() []Row {
	return []Row{
		{Title: "Overview", Panels: overview()},
		{Title: "Clusters", Panels: clusters()},
		{Title: "Requests to clusters", Panels: upstream()},
		{Title: "Requests of clients", Panels: clients()},
		{Title: "Access", Panels: access()},
		{Title: "Process", Panels: process()},
	}
}

func overview() []Panel {
	return []Panel{
		{Title: "Clusters", Description: "Clusters by state.", Kind: "stat", Unit: "short", Width: 6, Queries: []Query{
			{`sum by (state) (watershed_cluster_state` + chosen + `)`, "{{state}}"},
		}},
		{Title: "Objects", Description: "Objects of all selected clusters.", Kind: "stat", Unit: "short", Width: 4, Queries: []Query{
			{`sum(watershed_objects` + chosen + `)`, "objects"},
		}},
		{Title: "Longest staleness", Description: "How old the oldest copy is.", Kind: "stat", Unit: "s", Width: 4, Queries: []Query{
			{`max(watershed_staleness_seconds` + chosen + `)`, "staleness"},
		}},
		{Title: "Requests saved", Description: "The part of the requests for clusters that was answered from the copy.", Kind: "stat", Unit: "percentunit", Width: 5, Queries: []Query{
			{`sum(rate(watershed_upstream_requests_saved_total[$__rate_interval])) / (sum(rate(watershed_upstream_requests_saved_total[$__rate_interval])) + sum(rate(watershed_upstream_requests_total[$__rate_interval])) + sum(rate(watershed_passed_requests_total[$__rate_interval])))`, "saved"},
		}},
		{Title: "Watchers", Description: "Watches of clients that are open.", Kind: "stat", Unit: "short", Width: 5, Queries: []Query{
			{`sum(watershed_watchers)`, "watchers"},
		}},
	}
}

func clusters() []Panel {
	return []Panel{
		{Title: "Stale clusters", Description: "Clusters whose copy is not current, and why.", Kind: "table", Unit: "s", Width: 12, Queries: []Query{
			{`sort_desc(max by (cluster, cause) (watershed_staleness_seconds` + chosen + ` > 0))`, ""},
		}},
		{Title: "Stale resources", Description: "Resources whose copy is not current, and why.", Kind: "table", Unit: "s", Width: 12, Queries: []Query{
			{`topk(50, max by (cluster, resource, cause) (watershed_resource_staleness_seconds` + chosen + `))`, ""},
		}},
		{Title: "Problems", Description: "Reasons for concern, as watershed status prints them.", Kind: "table", Unit: "short", Width: 8, Queries: []Query{
			{`max by (cluster, reason) (watershed_problems` + chosen + `)`, ""},
		}},
		{Title: "Verifications", Description: "Comparisons of copies with their clusters, and the resources that were listed again because of them.", Kind: "timeseries", Unit: "ops", Width: 8, Queries: []Query{
			{perSecond("result", "watershed_verifications_total"+chosen), "{{result}}"},
			{`sum(rate(watershed_repairs_total` + chosen + `[$__rate_interval]))`, "repairs"},
		}},
		{Title: "Divergences", Description: "Resources that differ from their cluster, and objects that were found to differ, by kind.", Kind: "timeseries", Unit: "short", Width: 8, Queries: []Query{
			{`sum(watershed_diverged_resources` + chosen + `)`, "resources"},
			{`sum by (kind) (increase(watershed_divergences_total` + chosen + `[$__rate_interval]))`, "{{kind}}"},
		}},
		{Title: "Staleness", Description: "Age of the copies that are not current.", Kind: "timeseries", Unit: "s", Width: 12, Queries: []Query{
			{`topk(20, max by (cluster) (watershed_staleness_seconds` + chosen + `))`, "{{cluster}}"},
		}},
		{Title: "Resources not synced", Description: "Resources that have not been read completely.", Kind: "timeseries", Unit: "short", Width: 12, Queries: []Query{
			{`topk(20, sum by (cluster) (watershed_resources` + chosen + `) - sum by (cluster) (watershed_resources_synced` + chosen + `))`, "{{cluster}}"},
		}},
		{Title: "Objects by cluster", Description: "The largest clusters.", Kind: "timeseries", Unit: "short", Width: 12, Queries: []Query{
			{`topk(20, sum by (cluster) (watershed_objects` + chosen + `))`, "{{cluster}}"},
		}},
		{Title: "Objects by resource", Description: "The largest resources.", Kind: "timeseries", Unit: "short", Width: 12, Queries: []Query{
			{`topk(20, sum by (resource) (watershed_objects` + chosen + `))`, "{{resource}}"},
		}},
		{Title: "Memory by cluster", Description: "Objects and history of the largest clusters.", Kind: "timeseries", Unit: "bytes", Width: 8, Queries: []Query{
			{`topk(20, sum by (cluster) (watershed_cluster_memory_bytes` + chosen + `))`, "{{cluster}}"},
		}},
		{Title: "Memory by resource", Description: "Objects, history and windows of the largest resources, in all clusters.", Kind: "timeseries", Unit: "bytes", Width: 8, Queries: []Query{
			{`topk(20, sum by (resource) (watershed_resource_memory_bytes))`, "{{resource}}"},
		}},
		{Title: "Shared memory", Description: "Dictionaries, decoded values and cached access decisions.", Kind: "timeseries", Unit: "bytes", Width: 8, Queries: []Query{
			{`sum by (part) (watershed_shared_memory_bytes)`, "{{part}}"}, {`sum(watershed_access_review_cache_bytes)`, "access decisions"},
		}},
	}
}

func upstream() []Panel {
	return []Panel{
		{Title: "Events", Description: "Watch events by type.", Kind: "timeseries", Unit: "ops", Width: 8, Queries: []Query{
			{perSecond("type", "watershed_events_total"+chosen), "{{type}}"},
		}},
		{Title: "Event delay", Description: "Time from the arrival of an event until it is stored, 99th percentile.", Kind: "timeseries", Unit: "s", Width: 8, Queries: []Query{
			{"topk(20, " + quantile("0.99", "cluster", "watershed_event_delay_seconds_bucket"+chosen) + ")", "{{cluster}}"},
		}},
		{Title: "Queued changes", Description: "Changes that wait to be stored.", Kind: "timeseries", Unit: "short", Width: 8, Queries: []Query{
			{`topk(20, sum by (cluster) (watershed_queued_changes` + chosen + `))`, "{{cluster}}"},
		}},
		{Title: "Requests to clusters", Description: "Requests that keep the copies current, those that were passed on, and those that the copy has saved.", Kind: "timeseries", Unit: "reqps", Width: 8, Queries: []Query{
			{perSecond("verb", "watershed_upstream_requests_total"+chosen), "{{verb}}"},
			{`sum(rate(watershed_passed_requests_total[$__rate_interval]))`, "passed on"},
			{`sum(rate(watershed_upstream_requests_saved_total[$__rate_interval]))`, "saved"},
		}},
		{Title: "Bytes from clusters", Description: "Bytes of responses, before decompression.", Kind: "timeseries", Unit: "Bps", Width: 8, Queries: []Query{
			{perSecond("verb", "watershed_upstream_response_bytes_total"+chosen), "{{verb}}"},
		}},
		{Title: "Lists", Description: "Lists that are being read, and lists that wait for their turn.", Kind: "timeseries", Unit: "short", Width: 8, Queries: []Query{
			{`sum(watershed_lists_running)`, "running"}, {`sum(watershed_lists_waiting)`, "waiting"},
		}},
		{Title: "Relists", Description: "Complete states that were read, by cause.", Kind: "timeseries", Unit: "ops", Width: 8, Queries: []Query{
			{perSecond("cause", "watershed_relists_total"+chosen), "{{cause}}"},
		}},
		{Title: "Failures", Description: "Failed requests to clusters, by reason.", Kind: "timeseries", Unit: "ops", Width: 8, Queries: []Query{
			{perSecond("reason", "watershed_failures_total"+chosen), "{{reason}}"},
			{`sum(rate(watershed_upstream_request_failures_total` + chosen + `[$__rate_interval]))`, "requests"},
		}},
		{Title: "Objects left out", Description: "Objects that could not be read or decoded, and objects beyond a limit.", Kind: "timeseries", Unit: "ops", Width: 8, Queries: []Query{
			{`sum(rate(watershed_dropped_objects_total` + chosen + `[$__rate_interval]))`, "dropped"},
			{`sum(rate(watershed_undecodable_states_total[$__rate_interval]))`, "undecodable"},
			{`sum(rate(watershed_limit_refusals_total` + chosen + `[$__rate_interval]))`, "beyond a limit"},
			{`sum(increase(watershed_restores_total` + chosen + `[$__rate_interval]))`, "restores"},
		}},
	}
}

func clients() []Panel {
	return []Panel{
		{Title: "Requests", Description: "Requests by verb and code.", Kind: "timeseries", Unit: "reqps", Width: 8, Queries: []Query{
			{perSecond("verb, code", "watershed_requests_total"), "{{verb}} {{code}}"},
		}},
		{Title: "Requests by resource", Description: "The most requested resources.", Kind: "timeseries", Unit: "reqps", Width: 8, Queries: []Query{
			{"topk(20, " + perSecond("group, resource", "watershed_requests_total") + ")", "{{resource}} {{group}}"},
		}},
		{Title: "Duration", Description: "Time to answer a request, 50th and 99th percentile.", Kind: "timeseries", Unit: "s", Width: 8, Queries: []Query{
			{quantile("0.5", "verb", "watershed_request_duration_seconds_bucket"), "{{verb}} 50 %"},
			{quantile("0.99", "verb", "watershed_request_duration_seconds_bucket"), "{{verb}} 99 %"},
		}},
		{Title: "Bytes to clients", Description: "Bytes of responses.", Kind: "timeseries", Unit: "Bps", Width: 8, Queries: []Query{
			{perSecond("verb", "watershed_response_bytes_total"), "{{verb}}"},
		}},
		{Title: "Watchers by cluster", Description: "Watches of clients. No name means /fleet.", Kind: "timeseries", Unit: "short", Width: 8, Queries: []Query{
			{`topk(20, sum by (cluster) (watershed_watchers))`, "{{cluster}}"}, {`sum(watershed_open_responses)`, "all open responses"},
		}},
		{Title: "Slow clients", Description: "Responses that wait for their client, the longest wait, and clients that were cut off or whose watch expired.", Kind: "timeseries", Unit: "short", Width: 8, Queries: []Query{
			{`sum(watershed_blocked_responses)`, "blocked"}, {`max(watershed_blocked_response_seconds)`, "longest wait in seconds"},
			{`sum(increase(watershed_clients_cut_total[$__rate_interval]))`, "cut off"}, {`sum(increase(watershed_watches_expired_total[$__rate_interval]))`, "expired"},
		}},
	}
}

func access() []Panel {
	return []Panel{
		{Title: "Authentication", Description: "Requests by the result of authentication.", Kind: "timeseries", Unit: "reqps", Width: 6, Queries: []Query{
			{perSecond("result", "watershed_authentications_total"), "{{result}}"},
		}},
		{Title: "Authorization", Description: "Decisions about requests.", Kind: "timeseries", Unit: "reqps", Width: 6, Queries: []Query{
			{perSecond("decision", "watershed_authorizations_total"), "{{decision}}"},
		}},
		{Title: "Reviews", Description: "How decisions and tokens were checked.", Kind: "timeseries", Unit: "ops", Width: 6, Queries: []Query{
			{perSecond("result", "watershed_access_reviews_total"), "decision {{result}}"}, {perSecond("result", "watershed_token_checks_total"), "token {{result}}"},
			{perSecond("result", "watershed_local_rbac_decisions_total"), "RBAC {{result}}"}, {`sum(increase(watershed_local_rbac_disagreements_total[$__rate_interval]))`, "disagreements"},
		}},
		{Title: "Limiter", Description: "Work in progress, waiting requests, and requests that got a 429.", Kind: "timeseries", Unit: "short", Width: 6, Queries: []Query{
			{`sum(watershed_inflight_units)`, "units in flight"}, {`sum(watershed_waiting_requests)`, "waiting"}, {`sum(watershed_active_users)`, "users"},
			{`sum(watershed_admitted_watches)`, "watches"}, {perSecond("reason", "watershed_rejected_requests_total"), "rejected: {{reason}}"},
		}},
	}
}

func process() []Panel {
	return []Panel{
		{Title: "Memory of the process", Description: "Resident memory, and the heap.", Kind: "timeseries", Unit: "bytes", Width: 6, Queries: []Query{
			{`sum by (instance) (process_resident_memory_bytes * on (instance, job) group_left () max by (instance, job) (watershed_build_info))`, "{{instance}} resident"},
			{`sum by (instance) (go_memstats_heap_inuse_bytes * on (instance, job) group_left () max by (instance, job) (watershed_build_info))`, "{{instance}} heap"},
		}},
		{Title: "Memory limit", Description: "The memory that counts against the limit, and the limit.", Kind: "timeseries", Unit: "bytes", Width: 6, Queries: []Query{
			{`max by (instance) (watershed_memory_used_bytes)`, "{{instance}} used"}, {`max by (instance) (watershed_memory_limit_bytes)`, "{{instance}} limit"},
		}},
		{Title: "Memory pressure", Description: "0 nothing, 1 smaller caches, 2 shorter history, 3 no further resources, 4 no further objects.", Kind: "timeseries", Unit: "short", Width: 6, Queries: []Query{
			{`max by (instance) (watershed_memory_pressure)`, "{{instance}}"},
		}},
		{Title: "Processor", Description: "Processors in use.", Kind: "timeseries", Unit: "short", Width: 6, Queries: []Query{
			{`sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]) * on (instance, job) group_left () max by (instance, job) (watershed_build_info))`, "{{instance}}"},
		}},
		{Title: "Audit log", Description: "Events that were written or lost, and those that wait.", Kind: "timeseries", Unit: "short", Width: 12, Queries: []Query{
			{perSecond("result", "watershed_audit_events_total"), "{{result}} per second"}, {`sum(watershed_audit_pending_events)`, "waiting"},
		}},
		{Title: "Files", Description: "Bytes of objects that are written to files, those that wait, and errors.", Kind: "timeseries", Unit: "short", Width: 12, Queries: []Query{
			{`sum(rate(watershed_storage_written_bytes_total[$__rate_interval]))`, "bytes per second"}, {`sum(watershed_storage_queued_bytes)`, "bytes waiting"},
			{`sum(rate(watershed_storage_errors_total[$__rate_interval]))`, "errors per second"}, {`sum(watershed_storage_behind_resources)`, "resources behind"},
			{`sum(rate(watershed_storage_dropped_total[$__rate_interval]))`, "dropped per second"}, {`sum(rate(watershed_storage_changes_total[$__rate_interval]))`, "changes per second"},
		}},
		{Title: "Dropped spans", Description: "Spans of traces that the collector did not take.", Kind: "timeseries", Unit: "ops", Width: 12, Queries: []Query{
			{`sum(rate(watershed_trace_spans_dropped_total[$__rate_interval]))`, "dropped"},
		}},
		{Title: "Version", Description: "Versions that run.", Kind: "table", Unit: "short", Width: 12, Queries: []Query{
			{`sum by (version) (watershed_build_info)`, "{{version}}"},
		}},
	}
}
