// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/watershed-project/watershed/replica"
)

// kubernetes returns the attributes of a request for a resource. The conventions have names for
// clusters and namespaces only. The name of the object is in the path.
func kubernetes(q *replica.Request) []attribute.KeyValue {
	a := q.Attributes()
	all := []attribute.KeyValue{attribute.String("watershed.verb", q.Verb)}
	if !a.IsResource {
		return all
	}
	all = append(all, attribute.String("watershed.resource", q.GroupResource().String()))
	if q.Subresource != "" {
		all = append(all, attribute.String("watershed.subresource", q.Subresource))
	}
	if q.Namespace != "" {
		all = append(all, attribute.String("k8s.namespace.name", q.Namespace))
	}
	return all
}

// protocol returns the version of HTTP of a request.
func protocol(r *http.Request) string {
	if r.ProtoMajor == 2 {
		return "2"
	}
	return strings.TrimPrefix(r.Proto, "HTTP/")
}

// prefixOf returns the template of the part of a path before the API.
func prefixOf(q *replica.Request) string {
	switch {
	case q.Fleet:
		return "/fleet"
	case q.Cluster != "":
		return "/clusters/{cluster}"
	}
	return ""
}

// routeOf returns the template of the path below the root of an API.
func routeOf(q *replica.Request) string {
	if !q.IsResource {
		switch root, _, _ := strings.Cut(strings.TrimPrefix(q.Path, "/"), "/"); root {
		case "api", "apis", "openapi", "healthz", "livez", "readyz", "version", "metrics", "clusters":
			return "/" + root
		}
		return "/{path}"
	}
	return template(q.Group, q.Version, q.Resource, q.Subresource, q.Namespace != "", q.Name != "")
}

// template returns the template of the path of a resource.
func template(group, version, resource, subresource string, namespaced, named bool) string {
	path := "/api/" + version
	if group != "" {
		path = "/apis/" + group + "/" + version
	}
	if namespaced {
		path += "/namespaces/{namespace}"
	}
	path += "/" + resource
	if named {
		path += "/{name}"
	}
	if subresource != "" {
		first, rest, _ := strings.Cut(subresource, "/")
		path += "/" + first
		if rest != "" {
			path += "/{path}"
		}
	}
	return path
}
