// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package remedy has a text for each kind of problem of a cluster that says what to do about
// it, with the command to run if there is one.
package remedy

import (
	"cmp"
	"strings"

	"github.com/watershed-project/watershed/fleet"
)

// Subject is what a problem is about.
type Subject struct {
	// Program is the name of the command, such as "watershed" or "kubectl watershed".
	Program string
	// Cluster is the name of the cluster, and Context its kubeconfig context if it has one, in
	// the file Kubeconfig. That is "" if kubectl reads the file by default.
	Cluster, Context, Kubeconfig string
	// User are the credentials of the replica, "" if they are not known.
	User string
	// Resources are the resources that are concerned.
	Resources []string
}

// IndistinctCallers is the reason of a problem that only check finds: the server does not tell
// callers apart by their tokens.
const IndistinctCallers = "IndistinctCallers"

// ReviewsForbidden is the reason of a problem that only check finds: the credentials may not
// authenticate or authorize other users.
const ReviewsForbidden = "ReviewsForbidden"

// UnverifiedServer is the reason of a problem that only check finds: nothing proves that the
// server belongs to the cluster.
const UnverifiedServer = "UnverifiedServer"

// The reasons of problems of the server itself.
const (
	// ConfigurationRejected means that the configuration file has errors, and that the settings
	// from before are in effect.
	ConfigurationRejected = "ConfigurationRejected"
	// SourceUnreadable means that a source of clusters cannot be read. Its clusters stay.
	SourceUnreadable = "SourceUnreadable"
	// HomeMissing means that the home cluster is not in the fleet.
	HomeMissing = "HomeMissing"
	// LeaseNotRenewed means that the Lease of this replica in its group is not renewed.
	LeaseNotRenewed = "LeaseNotRenewed"
	// LeaseIgnored means that a replica group has a Lease that no replica of this version can have
	// written.
	LeaseIgnored = "LeaseIgnored"
	// VersionsAhead means that the versions of /fleet are far ahead of the time of the group cluster.
	VersionsAhead = "VersionsAhead"
	// ReplicasDisagree means that the copies of this replica and of another one of its group differ, or
	// that the copy of the other one does not go on.
	ReplicasDisagree = "ReplicasDisagree"
	// PeerUnreachable means that this replica and another one of its group cannot reach each other.
	PeerUnreachable = "PeerUnreachable"
)

// texts have the remedies. Words in braces are replaced.
var texts = map[string]string{
	string(fleet.Unreachable): "start the API server, or correct its address in the kubeconfig; " +
		"to see the address: {kubectl} cluster-info",
	string(fleet.Silent): "look for a proxy or firewall that forgets idle connections, " +
		"and at the load of the API server: {kubectl} get --raw '/readyz?verbose'",
	string(fleet.ServerError): "look at the log of the API server, and at the servers behind it: " +
		"{kubectl} get --raw '/readyz?verbose'",
	string(fleet.DiscoveryFailed): "look for aggregated APIs that do not respond: {kubectl} get apiservices",
	string(fleet.TimedOut): "look at the load of the API server, and for a proxy or firewall that drops packets: " +
		"{kubectl} get --raw '/readyz?verbose'",
	string(fleet.CertificateExpired): "renew the certificate of the API server, with kubeadm: " +
		"kubeadm certs renew apiserver; if it is valid, set the clock of this machine",
	string(fleet.UnknownAuthority): "put the authority of the API server into the kubeconfig: " +
		"{config} set-cluster {entry} --certificate-authority ca.crt --embed-certs",
	string(fleet.WrongHost): "use an address that the certificate has, or name one of them: " +
		"{config} set-cluster {entry} --tls-server-name NAME",
	string(fleet.NoCredentials): "correct the entry of the cluster in its source; to see it: " +
		"{config} view --minify{context}",
	string(fleet.Unauthorized): "renew the token, certificate or login of the replica; to test it: " +
		"{kubectl} auth whoami",
	string(fleet.Forbidden): "grant the rights as an administrator: {rbac} | {administrator} apply -f -{except}",
	string(fleet.NotServed): "install the definition of the type ({kubectl} get crd), " +
		"or take it out of serve --resources",
	string(fleet.Busy): "the API server refuses work: look at {kubectl} get --raw " +
		"/debug/api_priority_and_fairness/dump_priority_levels, and give the replica a FlowSchema of its own",
	string(fleet.LimitExceeded): "raise serve --max-cluster-objects or --max-cluster-memory, " +
		"or mirror less with --resources and --except",
	string(fleet.OutOfMemory): "give the process more memory with serve --memory-limit and the limit of its " +
		"container, or mirror less with --resources and --except, or let serve drop resources with --expendable",
	string(fleet.AnotherCluster): "if the cluster was replaced on purpose nothing is to be done; " +
		"else correct its address: {config} view --minify{context}",
	string(fleet.Failed): "look at the log of the server, which has the whole error, and run: " +
		"{program} check --cluster {cluster}",
	fleet.TypeRemoved: "if the type was removed on purpose nothing is to be done; " +
		"else install its definition again: {kubectl} get crd {resources}",
	fleet.ClockSkew: "synchronise the clocks of the API server and of this machine; to see whether they are: " +
		"timedatectl, or chronyc tracking",
	fleet.Slow: "look at the load of the API server and of its etcd: {kubectl} get --raw '/readyz?verbose'",
	fleet.Flapping: "look for restarts of the API server, and for a proxy with an idle timeout below 2 minutes: " +
		"{kubectl} get --raw /metrics | grep ^process_start_time_seconds",
	fleet.NameTaken: "give each cluster a name of its own: " +
		"{config} rename-context {contextName} NAME, or rename the file in the directory",
	fleet.Diverged: "list the resources again: {program} verify --cluster {cluster} --repair; " +
		"and report how it came about",
	ReviewsForbidden: "to let other users in, grant the rights as an administrator: " +
		"{rbac} | {administrator} apply -f -",
	IndistinctCallers: "use the https address of the API server itself, " +
		"not that of a proxy with credentials of its own, such as kubectl proxy: " +
		"{config} set-cluster {entry} --server https://HOST:6443",
	UnverifiedServer: "use the https address of the API server, and its authority: " +
		"{config} set-cluster {entry} --server https://HOST:6443 --certificate-authority ca.crt --embed-certs " +
		"--insecure-skip-tls-verify=false",
	fleet.ClusterIsNewer: "install a release of Watershed for that version; " +
		"until then resources with new fields are read as JSON, which takes more memory",
	ConfigurationRejected: "correct the file, which is read again within seconds; to test it: " +
		"{program} config check FILE",
	SourceUnreadable: "make the file, directory or hub readable; " +
		"it is read again within seconds, and its clusters stay until then; to test it: {program} check",
	HomeMissing: "give serve --home the name of a cluster, see {program} status, " +
		"or add a cluster of that name to the sources",
	LeaseNotRenewed: "look at the API server of serve --group-cluster, see {program} status; to grant the rights: " +
		"{rbac} --group-namespace NAMESPACE | {administrator} apply -f -",
	LeaseIgnored: "upgrade all replicas of the group; if the Lease is not one of a replica, delete it",
	VersionsAhead: "synchronise the clocks of all API servers of serve --group-cluster; " +
		"versions then grow by one per change until the time has caught up",
	ReplicasDisagree: "find the copy that is wrong: {program} verify --replicas, and {program} verify through each " +
		"replica; to list the resource again: {program} verify --repair",
	PeerUnreachable: "see that the other replica runs, and that both reach each other at serve --group-address: " +
		"a network policy, a firewall or a version of another format can be between them",
	fleet.NotStored: "grant the rights as an administrator, and restart the server: " +
		"{rbac} | {administrator} apply -f -; or serve without --data-dir",
}

// For returns what to do about a problem. It is never "".
func For(reason string, about Subject) string {
	text, ok := texts[reason]
	if !ok {
		text = texts[string(fleet.Failed)]
	}
	return about.replacer().Replace(text)
}

// replacer replaces the words in braces.
func (s Subject) replacer() *strings.Replacer {
	file := ""
	if s.Kubeconfig != "" || s.Context == "" {
		file = " --kubeconfig " + cmp.Or(quoted(s.Kubeconfig), "FILE")
	}
	context := " --context " + cmp.Or(quoted(s.Context), "CONTEXT")
	place := file // a cluster that is not a context is in a file that only the user knows
	if s.Context != "" {
		place += context
	}
	except := ""
	if n := len(s.Resources); n > 0 && n <= maxExcept {
		except = "; or leave the resources out: serve --except " + strings.Join(s.Resources, ",")
	}
	return strings.NewReplacer(
		"{program}", s.Program, "{cluster}", cmp.Or(quoted(s.Cluster), "CLUSTER"),
		"{contextName}", cmp.Or(quoted(s.Context), "CONTEXT"), "{context}", context,
		"{kubectl}", "kubectl"+place, "{administrator}", "kubectl --context ADMIN",
		"{config}", "kubectl config"+file, "{entry}", "CLUSTER",
		"{rbac}", s.rbac(place), "{except}", except,
		"{resources}", cmp.Or(strings.Join(s.Resources, ","), "RESOURCES"),
	)
}

// maxExcept is how many resources a remedy advises to leave out. If more are concerned, they are
// hardly to be left out.
const maxExcept = 5

// rbac returns the command that prints the rights.
func (s Subject) rbac(place string) string {
	command := s.Program + " rbac" + place
	account, ok := strings.CutPrefix(s.User, "system:serviceaccount:")
	switch {
	case ok:
		return command + " --service-account " + quoted(strings.Replace(account, ":", "/", 1))
	case s.User != "":
		return command + " --user " + quoted(s.User)
	}
	return command + " --user USER"
}

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	plain := strings.IndexFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@", r)
	}) < 0
	if plain {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
