// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package dashboard

import (
	"fmt"
	"slices"
	"strings"
)

// RunbookURL is the address of the runbook. A heading for each alert follows.
const RunbookURL = "https://github.com/watershed-project/watershed/blob/main/docs/operations/runbook.md"

// Alert is an alert rule.
type Alert struct {
	Name string
	// Signal is an expression that always has a result while the program runs, or while the
	// trouble lasts. Condition is what follows it in the rule, such as "> 0". If Absent is
	// set, the rule is absent(Signal) instead.
	Signal, Condition string
	Absent            bool
	// For is how long the condition must hold.
	For string
	// Severity is critical, warning or info.
	Severity             string
	Summary, Description string
}

// Expr returns the expression of the rule.
func (a *Alert) Expr() string {
	if a.Absent {
		return "absent(" + a.Signal + ")"
	}
	return a.Signal + " " + a.Condition
}

// RenderAlerts returns the rules as a file for Prometheus.
func RenderAlerts(alerts []Alert) []byte {
	var b strings.Builder
	b.WriteString("# Alert rules of Watershed, made by cmd/watershed/internal/dashboard. Do not edit.\n")
	b.WriteString("# docs/operations/runbook.md has a section for each alert.\n")
	b.WriteString("groups:\n- name: watershed\n  rules:\n")
	for i := range alerts {
		a := &alerts[i]
		fmt.Fprintf(&b, "  - alert: %s\n    expr: |-\n      %s\n", a.Name, a.Expr())
		if a.For != "" {
			fmt.Fprintf(&b, "    for: %s\n", a.For)
		}
		fmt.Fprintf(&b, "    labels:\n      severity: %s\n", a.Severity)
		fmt.Fprintf(&b, "    annotations:\n      summary: %q\n      description: %q\n      runbook_url: %q\n", a.Summary, a.Description, RunbookURL+"#"+strings.ToLower(a.Name))
	}
	return []byte(b.String())
}

// stale returns a signal for clusters that are stale because of one of some causes. The cause is
// no label of the alert: it often changes, and the alert would start again each time.
func stale(causes string) string {
	return `max by (cluster) (watershed_staleness_seconds{cause=~"` + causes + `"})`
}

// refused are the causes of a cluster that does not accept the credentials.
const refused = "Unauthorized|Forbidden"

// mostlyRefused returns a signal for clusters that refuse the credentials for at least half of
// the resources. A cluster that refuses a few has the alert WatershedResourceForbidden.
func mostlyRefused() string {
	few := `count by (cluster) (watershed_resource_staleness_seconds{cause=~"` + refused + `"})` +
		` < 0.5 * sum by (cluster) (watershed_resources)`
	return "(" + stale(refused) + " unless on (cluster) (" + few + "))"
}

// serverProblem returns a signal for servers with a problem of their own.
func serverProblem(reason string) string {
	return `max by (instance, reason) (watershed_server_problems{reason="` + reason + `"})`
}

// problem returns a signal for clusters with a problem.
func problem(reason string) string {
	return `max by (cluster, reason) (watershed_problems{reason="` + reason + `"})`
}

// increase returns how much a counter has grown, summed by cluster.
func increase(by, metric, window string) string {
	if by == "" {
		return "sum(increase(" + metric + "[" + window + "]))"
	}
	return "sum by (" + by + ") (increase(" + metric + "[" + window + "]))"
}

// Alerts returns the alert rules.
func Alerts() []Alert {
	return slices.Concat(staleAlerts(), clusterAlerts(), problemAlerts(), servingAlerts(), serverAlerts())
}

// staleAlerts are about copies that are not current.
func staleAlerts() []Alert {
	return []Alert{
		{
			Name:      "WatershedClusterUnreachable",
			Signal:    stale("Unreachable|Silent|TimedOut|ServerError|Busy|DiscoveryFailed|NotServed|Failed"),
			Condition: "> 180", For: "1m", Severity: "warning",
			Summary: "Cluster {{ $labels.cluster }} cannot be read",
			Description: "The copy of {{ $labels.cluster }} has not been current for {{ $value | humanizeDuration }}. watershed " +
				"status has the cause.",
		},
		{
			Name:      "WatershedCredentialsRefused",
			Signal:    mostlyRefused(),
			Condition: "> 180", For: "1m", Severity: "warning",
			Summary: "Cluster {{ $labels.cluster }} refuses the credentials of Watershed",
			Description: "The copy of {{ $labels.cluster }} has not been current for {{ $value | humanizeDuration }}, because the " +
				"cluster does not let Watershed read at least half of the resources.",
		},
		{
			Name:      "WatershedCertificateRefused",
			Signal:    stale("CertificateExpired|UnknownAuthority|WrongHost"),
			Condition: "> 180", For: "1m", Severity: "warning",
			Summary: "The certificate of cluster {{ $labels.cluster }} is not accepted",
			Description: "The certificate has expired, is not yet valid, is for another name, or was issued by an authority that " +
				"is not in the kubeconfig. The copy has not been current for {{ $value | humanizeDuration }}.",
		},
		{
			Name:      "WatershedAnotherCluster",
			Signal:    stale("AnotherCluster|NoCredentials"),
			Condition: "> 180", For: "1m", Severity: "warning",
			Summary: "The name {{ $labels.cluster }} does not lead to its cluster",
			Description: "The address of {{ $labels.cluster }} leads to another cluster, or the source of clusters has no usable " +
				"configuration for it. watershed status has the cause.",
		},
		{
			Name:      "WatershedResourceStale",
			Signal:    `max by (cluster, resource) (watershed_resource_staleness_seconds{cause!~"Forbidden|LimitExceeded|OutOfMemory"})`,
			Condition: "> 600", For: "1m", Severity: "warning",
			Summary: "{{ $labels.resource }} of cluster {{ $labels.cluster }} is not current",
			Description: "The copy of the resource has not been current for {{ $value | humanizeDuration }}. watershed status has " +
				"the cause.",
		},
		{
			Name: "WatershedResourceForbidden", Signal: `max by (cluster, resource) (watershed_resource_staleness_seconds{cause="Forbidden"})`, Condition: "> 0", For: "5m", Severity: "info",
			Summary: "Watershed may not read {{ $labels.resource }} of cluster {{ $labels.cluster }}", Description: "The credentials of Watershed do not have the right to list and watch the resource.",
		},
		{
			Name: "WatershedLimitExceeded", Signal: `max by (cluster, resource) (watershed_resource_staleness_seconds{cause="LimitExceeded"})`, Condition: "> 0", For: "1m", Severity: "warning",
			Summary: "Cluster {{ $labels.cluster }} exceeds a limit", Description: "{{ $labels.resource }} of {{ $labels.cluster }} has ceased to be read, because the cluster has more objects, bytes or kinds than Watershed may keep of one cluster.",
		},
		{
			Name:      "WatershedOutOfMemory",
			Signal:    `max by (cluster, resource) (watershed_resource_staleness_seconds{cause="OutOfMemory"})`,
			Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "Watershed has no memory for {{ $labels.resource }} of cluster {{ $labels.cluster }}",
			Description: "The process is so near its memory limit that it does not mirror {{ $labels.resource }} of " +
				"{{ $labels.cluster }}, or does not keep the copy current.",
		},
	}
}

// clusterAlerts are about clusters that are read, with difficulties.
func clusterAlerts() []Alert {
	return []Alert{
		{
			Name: "WatershedRelists", Signal: increase("cluster", `watershed_relists_total{cause!="begun"}`, "15m"), Condition: "> 200", Severity: "warning",
			Summary: "Cluster {{ $labels.cluster }} is listed again and again", Description: "{{ $value | humanize }} resources of {{ $labels.cluster }} were read again completely in 15 minutes. That loads its API server.",
		},
		{
			Name: "WatershedClusterRestored", Signal: increase("cluster", "watershed_restores_total", "15m"), Condition: "> 0", Severity: "warning",
			Summary: "The data of cluster {{ $labels.cluster }} has gone back", Description: "Resources of {{ $labels.cluster }} are at older versions than before. Its etcd was probably restored from a backup. The copy has been read again.",
		},
		{
			Name: "WatershedSyncStuck", Signal: `sum by (cluster) (watershed_resources) - sum by (cluster) (watershed_resources_synced)`, Condition: "> 0", For: "30m", Severity: "warning",
			Summary: "Cluster {{ $labels.cluster }} does not finish its first sync", Description: "{{ $value }} resources of {{ $labels.cluster }} have not been read completely for half an hour.",
		},
		{
			Name: "WatershedEventsLate", Signal: `histogram_quantile(0.99, sum by (cluster, le) (rate(watershed_event_delay_seconds_bucket[10m])))`, Condition: "> 1", For: "10m", Severity: "warning",
			Summary: "Events of cluster {{ $labels.cluster }} are stored late", Description: "1 % of the batches of events take more than {{ $value | humanizeDuration }} from their arrival until they are stored.",
		},
		{
			Name: "WatershedObjectsDropped", Signal: increase("cluster", "watershed_dropped_objects_total", "15m"), Condition: "> 0", Severity: "warning",
			Summary: "Objects of cluster {{ $labels.cluster }} could not be read", Description: "{{ $value | humanize }} objects are missing from the copy of {{ $labels.cluster }}, or outdated in it.",
		},
	}
}

// problemAlerts are about clusters whose copy may be current all the same.
func problemAlerts() []Alert {
	return []Alert{
		{
			Name: "WatershedFlapping", Signal: problem("Flapping"), Condition: "> 0", Severity: "warning",
			Summary: "The connection to cluster {{ $labels.cluster }} breaks again and again", Description: "The watches of {{ $labels.cluster }} broke several times within ten minutes and were resumed.",
		},
		{
			Name: "WatershedSlow", Signal: problem("Slow"), Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "The API server of cluster {{ $labels.cluster }} is slow", Description: "The API server of {{ $labels.cluster }} takes more than two seconds to answer a request for its version.",
		},
		{
			Name: "WatershedClockSkew", Signal: problem("ClockSkew"), Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "The clock of cluster {{ $labels.cluster }} is wrong, or that of Watershed", Description: "The clocks of {{ $labels.cluster }} and of Watershed differ. Certificates and tokens can be refused because of that.",
		},
		{
			Name: "WatershedTypeRemoved", Signal: problem("TypeRemoved"), Condition: "> 0", Severity: "info",
			Summary: "Cluster {{ $labels.cluster }} has ceased to serve a type", Description: "A resource of {{ $labels.cluster }} that was mirrored is no longer served. Requests for it are answered with 404.",
		},
		{
			Name: "WatershedNameTaken", Signal: problem("NameTaken"), Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "Two clusters have the name {{ $labels.cluster }}", Description: "Another cluster of this name is left out, or had the name until recently.",
		},
		{
			Name: "WatershedClusterIsNewer", Signal: problem("ClusterIsNewer"), Condition: "> 0", For: "1h", Severity: "info",
			Summary: "Cluster {{ $labels.cluster }} is newer than Watershed", Description: "The Kubernetes of {{ $labels.cluster }} is newer than the types of Watershed. Resources that changed take more memory.",
		},
		{
			Name: "WatershedDiverged", Signal: problem("Diverged"), Condition: "> 0", Severity: "critical",
			Summary: "The copy of cluster {{ $labels.cluster }} is not right", Description: "A verification has found objects that differ from those of {{ $labels.cluster }}, and has not repaired them.",
		},
	}
}

func servingAlerts() []Alert {
	return []Alert{
		{
			Name: "WatershedDown", Signal: "watershed_build_info", Absent: true, For: "5m", Severity: "critical",
			Summary: "No Watershed is scraped", Description: "Prometheus has no metrics of any Watershed: it does not run, does not answer, or refuses the scrape.",
		},
		{
			Name: "WatershedRequestErrors", Signal: `sum(rate(watershed_requests_total{code=~"5.."}[5m])) / sum(rate(watershed_requests_total[5m]))`, Condition: "> 0.05", For: "10m", Severity: "critical",
			Summary: "Watershed answers with errors", Description: "{{ $value | humanizePercentage }} of the requests get a code of 500 or more.",
		},
		{
			Name: "WatershedRequestsSlow", Signal: `histogram_quantile(0.99, sum by (verb, le) (rate(watershed_request_duration_seconds_bucket{verb="GET"}[5m])))`, Condition: "> 1", For: "10m", Severity: "warning",
			Summary: "Watershed answers slowly", Description: "1 % of the requests for one object take more than {{ $value | humanizeDuration }}.",
		},
		{
			Name: "WatershedRequestsRejected", Signal: `sum(rate(watershed_rejected_requests_total{reason!="canceled"}[5m]))`, Condition: "> 1", For: "5m", Severity: "warning",
			Summary: "Watershed rejects requests because it is busy", Description: "{{ $value | humanize }} requests per second get a 429.",
		},
		{
			Name: "WatershedClientsCut", Signal: "sum(increase(watershed_clients_cut_total[15m])) + sum(increase(watershed_watches_expired_total[15m]))", Condition: "> 20", Severity: "info",
			Summary: "Clients of Watershed are too slow", Description: "{{ $value | humanize }} clients were cut off in 15 minutes because they did not read, or lost their watch because they fell behind the history.",
		},
		{
			Name: "WatershedAccessUndecided", Signal: `sum(rate(watershed_authorizations_total{decision="error"}[5m])) + sum(rate(watershed_authentications_total{result="error"}[5m]))`, Condition: "> 0.1", For: "5m", Severity: "warning",
			Summary: "Clusters do not decide about callers", Description: "{{ $value | humanize }} requests per second fail because the cluster does not answer token reviews or access reviews.",
		},
		{
			Name: "WatershedTokenGuessing", Signal: `sum(rate(watershed_authentications_total{result=~"failure|limited"}[5m]))`, Condition: "> 10", For: "5m", Severity: "warning",
			Summary: "Many requests have invalid credentials", Description: "{{ $value | humanize }} requests per second get a 401, or a 429 because of too many unknown tokens.",
		},
		{
			Name: "WatershedRBACDisagreement", Signal: "sum(increase(watershed_local_rbac_disagreements_total[1h]))", Condition: "> 0", Severity: "critical",
			Summary: "A cluster denies what Watershed has allowed", Description: "With --local-rbac, a decision of Watershed was contradicted by the cluster.",
		},
		{
			Name: "WatershedAuditLost", Signal: `sum(increase(watershed_audit_events_total{result="dropped"}[15m]))`, Condition: "> 0", Severity: "critical",
			Summary: "Audit events were lost", Description: "{{ $value | humanize }} audit events could not be written in 15 minutes.",
		},
		{
			Name: "WatershedStorageFailing", Signal: `sum by (instance) (increase(watershed_storage_errors_total[15m]))`, Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "Watershed cannot write its files", Description: "{{ $value | humanize }} operations on the files of {{ $labels.instance }} failed in 15 minutes. Reads do not suffer, but a restart would, and the past has gaps.",
		},
	}
}

// serverAlerts are about the server itself.
func serverAlerts() []Alert {
	return []Alert{
		{
			Name:      "WatershedMemoryPressure",
			Signal:    `max by (instance) (max_over_time(watershed_memory_pressure[5m]))`,
			Condition: ">= 2", For: "10m", Severity: "warning",
			Summary: "Watershed is near its memory limit",
			Description: "{{ $labels.instance }} keeps less history than configured and, at a pressure of 3 and more, does not " +
				"mirror further resources. The pressure of the last five minutes is {{ $value }}.",
		},
		{
			Name:      "WatershedConfigurationRejected",
			Signal:    serverProblem("ConfigurationRejected"),
			Condition: "> 0", For: "2m", Severity: "warning",
			Summary: "The configuration file of Watershed has errors",
			Description: "{{ $labels.instance }} goes on with the settings from before the last change of its configuration file. " +
				"It would not start with the present file.",
		},
		{
			Name:      "WatershedSourceUnreadable",
			Signal:    serverProblem("SourceUnreadable"),
			Condition: "> 0", For: "5m", Severity: "warning",
			Summary: "Watershed cannot read a source of clusters",
			Description: "{{ $labels.instance }} cannot read a file, folder or hub that lists clusters. Clusters that were added " +
				"there are not mirrored, and those that were removed stay.",
		},
		{
			Name:      "WatershedHomeMissing",
			Signal:    serverProblem("HomeMissing"),
			Condition: "> 0", For: "5m", Severity: "critical",
			Summary: "The home cluster of Watershed is not in the fleet",
			Description: "No cluster has the name that serve --home of {{ $labels.instance }} has, so requests below /fleet with " +
				"tokens of that cluster get a 503.",
		},
	}
}
