// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"net/http"
	"slices"
	"strings"
)

// difference is one intended difference between the replica and kube-apiserver.
type difference struct {
	// name is its heading in docs/compat.md, and reason the text below it.
	name, reason string
	// applies reports whether it explains all findings.
	applies func(w *comparedCluster, r *result) bool
}

// oldWatches is a difference that occurs only if the copy is older than ten minutes, so it need not occur.
const oldWatches = "Watches of versions of long ago"

// differences are all intended differences of a replica that does not pass requests on.
var differences = []difference{
	{
		"Writes", "The replica is read-only. Every method except GET is answered with 405, and the message names the " +
			"address to write to.",
		func(_ *comparedCluster, r *result) bool {
			return r.request.Method != http.MethodGet && r.copy.code == http.StatusMethodNotAllowed
		},
	},
	{
		"Connections", "The replica serves the subresources that are made from the object. Logs and other requests " +
			"that the server passes to a kubelet or a pod are answered with 405, and the message names the address " +
			"to use.",
		func(_ *comparedCluster, r *result) bool {
			rest := belowVersion(r.request.path())
			v, err := value(r.copy)
			return slices.ContainsFunc(rest[min(2, len(rest)):], func(part string) bool {
				return slices.Contains(connected, part)
			}) &&
				r.copy.code == http.StatusMethodNotAllowed && err == nil &&
				strings.Contains(text(v, "message"), "made from the object; send the request to https://")
		},
	},
	{
		"Other versions of a resource",
		"A resource is mirrored in one version, the one that the server prefers. Discovery has no other versions: " +
			"404. Their objects are 503 and not 404, which an informer takes for the end of the resource.",
		func(w *comparedCluster, r *result) bool {
			want := http.StatusNotFound
			if resourceOf(r.request.path()) != "" {
				want = http.StatusServiceUnavailable
			}
			return w.otherVersion(r.request.path()) && r.copy.code == want
		},
	},
	{
		"Resources that cannot be watched",
		"Resources that cannot be listed and watched, such as reviews and component statuses, cannot be mirrored. " +
			"They are 404, and so are groups that have no others.",
		func(w *comparedCluster, r *result) bool {
			return w.unwatchable(r.request.path()) && r.copy.code == http.StatusNotFound
		},
	},
	{
		"Pages about the server",
		"Metrics, profiles, keys and the list of all paths describe one server process. The replica does not return " +
			"those of the server that it copies: 404.",
		func(_ *comparedCluster, r *result) bool {
			return slices.Contains([]string{
				"/", "/index.html", "/metrics", "/debug/pprof/", "/logs", "/statusz", "/flagz",
				"/.well-known/openid-configuration", "/openid/v1/jwks",
			}, r.request.path()) &&
				r.copy.code == http.StatusNotFound
		},
	},
	{
		"Health", "The replica reports its own health, with other checks.",
		func(_ *comparedCluster, r *result) bool {
			root := strings.Split(r.request.path(), "/")[1]
			return slices.Contains([]string{"healthz", "livez", "readyz"}, root) &&
				(strings.Contains(r.request.URI, "verbose") || r.copy.code == http.StatusNotFound)
		},
	},
	{
		"Versions of long ago", "The server reads the state of any version that was not compacted from etcd. The " +
			"replica has a bounded history that begins with its watch. It answers older versions as a server does " +
			"after compaction: 410, so that clients list again.",
		func(_ *comparedCluster, r *result) bool {
			if r.request.watches() {
				return r.server.code == http.StatusOK && r.copy.code == http.StatusOK && len(r.copy.events) == 1 &&
					expired(r.copy.events[0].object)
			}
			v, err := value(r.copy)
			return err == nil && r.server.code == http.StatusOK && r.copy.code == http.StatusGone && expired(v)
		},
	},
	{
		"Compressed documents", "The replica keeps OpenAPI documents compressed, and sends them compressed to " +
			"clients that accept gzip. The server compresses only responses below /api and /apis.",
		func(_ *comparedCluster, r *result) bool {
			return strings.HasPrefix(r.request.path(), "/openapi/") && r.request.Encoding != "" &&
				r.only("header Vary", "header Content-Encoding")
		},
	},
	{
		"Protobuf of definitions and API services",
		"Their Go types are not in k8s.io/api, so they are mirrored as JSON. A client that accepts only protobuf " +
			"receives 406; one that also accepts JSON receives JSON.",
		func(_ *comparedCluster, r *result) bool {
			resource := resourceOf(r.request.path())
			return (resource == "customresourcedefinitions" || resource == "apiservices") &&
				strings.HasPrefix(r.request.Accept, protobufAccept) &&
				(r.copy.code == http.StatusNotAcceptable &&
					(r.server.code == http.StatusOK || r.server.code == http.StatusNotFound) ||
					r.only("header Content-Type"))
		},
	},
	{
		"Internal errors", "For some mistakes of a client the server returns 500. The replica returns the 4xx that " +
			"describes the mistake.",
		func(_ *comparedCluster, r *result) bool {
			return r.server.code == http.StatusInternalServerError && r.copy.code >= 400 && r.copy.code < 500
		},
	},
	{
		"Watches of lists", "The events of a watch contain single objects, so they cannot be sent as " +
			"PartialObjectMetadataList. The server opens such a watch and never sends an event; the replica returns " +
			"406.",
		func(_ *comparedCluster, r *result) bool {
			return r.request.watches() && strings.Contains(r.request.Accept, "as=PartialObjectMetadataList") &&
				r.server.code == http.StatusOK && len(r.server.events) == 0 && r.copy.code == http.StatusNotAcceptable
		},
	},
}

// passingDifferences are all intended differences of a replica with --pass-through.
var passingDifferences = []difference{
	{
		"Health", "The paths /healthz, /livez and /readyz report on the copy, also with --pass-through, so their " +
			"verbose form has other checks. The checks below them are those of the server.",
		func(_ *comparedCluster, r *result) bool {
			return slices.Contains([]string{"/healthz", "/livez", "/readyz"}, r.request.path()) &&
				strings.Contains(r.request.URI, "verbose")
		},
	},
	{
		oldWatches,
		"A watch that begins before the history of the replica receives 410, as from a server after compaction, so " +
			"that the client lists again and watches the copy. In the first ten minutes of a copy the replica reads " +
			"the changes before it from the server instead. The watch is not passed on: after a restart of the " +
			"replica all watches of its clients would stay at the server. Lists of old versions are passed on.",
		func(_ *comparedCluster, r *result) bool {
			return r.request.watches() && r.server.code == http.StatusOK && r.copy.code == http.StatusOK &&
				len(r.copy.events) == 1 && expired(r.copy.events[0].object)
		},
	},
	{
		"Protobuf of definitions and API services",
		"Their Go types are not in k8s.io/api, so they are mirrored as JSON. A client that accepts both protobuf and " +
			"JSON receives JSON from the copy. A request that accepts only protobuf is passed on.",
		func(_ *comparedCluster, r *result) bool {
			resource := resourceOf(r.request.path())
			return (resource == "customresourcedefinitions" || resource == "apiservices") &&
				strings.HasPrefix(r.request.Accept, protobufAccept) && r.only("header Content-Type")
		},
	},
	{
		"Caching", "The replica forbids to cache a response that has no rule of its own. The server does that too, " +
			"except for some internal errors.",
		func(_ *comparedCluster, r *result) bool {
			return r.only("header Cache-Control") && r.server.code == http.StatusInternalServerError &&
				r.server.header.Get("Cache-Control") == ""
		},
	},
	{
		"Pages for a browser", "HTML is not passed back: in a browser it would be a page of the replica, with access " +
			"to all of its clusters. Only the response of a program in the cluster can be HTML, below proxy.",
		func(_ *comparedCluster, r *result) bool {
			return mediaType(r.server.header) == "text/html" && r.copy.code == http.StatusNotFound
		},
	},
}

// only reports whether all findings are at the given places.
func (r *result) only(places ...string) bool {
	return !slices.ContainsFunc(r.found, func(f finding) bool { return !slices.Contains(places, f.where) })
}

// expired reports whether a value is the Status that makes clients list again.
func expired(v any) bool { return text(v, "kind") == "Status" && text(v, "reason") == "Expired" }

// isSubresource reports whether a path is that of a subresource.
func isSubresource(path string) bool {
	rest := belowVersion(path)
	if len(rest) > 0 && rest[0] == "namespaces" {
		return len(rest) == 5 || len(rest) == 3 && (rest[2] == "status" || rest[2] == "finalize")
	}
	return len(rest) == 3
}

// belowVersion returns the parts of a path after the group and version.
func belowVersion(path string) []string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		return parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		return parts[3:]
	}
	return nil
}

// groupVersionOf returns the group and version of a path, "" if it has none.
func groupVersionOf(path string) (group, version string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 1:
		return "", parts[1]
	case parts[0] == "apis" && len(parts) > 2:
		return parts[1], parts[2]
	}
	return "", ""
}

// resourceOf returns the resource of a path, "" if it has none.
func resourceOf(path string) string {
	rest := belowVersion(path)
	if len(rest) > 0 && rest[0] == "watch" {
		rest = rest[1:]
	}
	switch {
	case len(rest) > 2 && rest[0] == "namespaces":
		return rest[2]
	case len(rest) > 0:
		return rest[0]
	}
	return ""
}

// otherVersion reports whether a path is that of a version that is served and not
// mirrored, or of a resource in it.
func (w *comparedCluster) otherVersion(path string) bool {
	group, version := groupVersionOf(path)
	resource := resourceOf(path)
	served := slices.ContainsFunc(w.catalogue.all, func(s served) bool {
		return s.group == group && s.version == version && (resource == "" || s.resource == resource)
	})
	return served && !w.catalogue.has(group, version, resource)
}

// unwatchable reports whether a path is that of a resource that the server has and that
// cannot be watched.
func (w *comparedCluster) unwatchable(path string) bool {
	switch resourceOf(path) {
	case "componentstatuses", "bindings", "subjectaccessreviews", "tokenreviews":
		return true
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "apis" && len(parts) > 1 && parts[1] == "authorization.k8s.io"
}

// intended returns the first difference that explains a result.
func intended(w *comparedCluster, r *result, all []difference) *difference {
	for i := range all {
		if r.copy.err == nil && r.server.err == nil && all[i].applies(w, r) {
			return &all[i]
		}
	}
	return nil
}
