// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"net/http"
	"slices"
)

// pathEdges returns requests with unusual paths.
func pathEdges() []request {
	var out []request
	add := func(category, accept string, uris ...string) {
		for _, uri := range uris {
			out = append(out, request{Category: category, URI: uri, Accept: accept})
		}
	}
	add("paths", jsonAccept,
		"/api/v1/namespaces/shop/configmaps/absent", "/api/v1/namespaces/absent/configmaps",
		"/api/v1/namespaces/absent/configmaps/absent", "/api/v1/namespaces/absent",
		"/apis/example.com/v1/planets/pluto",
		"/apis/example.com/v1/namespaces/absent/widgets", "/apis/example.com/v1/namespaces/shop/widgets/absent",
		"/api/v1/nodes/absent", "/api/v1/nothings", "/api/v1/namespaces/shop/nothings",
		"/api/v1/namespaces/shop/nothings/one",
		"/apis/apps/v1/nothings", "/apis/apps/v9/deployments", "/apis/apps/v9", "/apis/nothing.example.com",
		"/apis/nothing.example.com/v1", "/apis/nothing.example.com/v1/nothings", "/apis/example.com/v1/nothings",
		"/apis/example.com/v2/widgets", "/apis/example.com/v2",
		"/api/v2", "/api/v2/pods", "/api/v1/configmaps/settings", "/api/v1/pods/db-0",
		"/apis/example.com/v1/widgets/one", "/api/v1/namespaces/shop/nodes", "/api/v1/namespaces/shop/nodes/node-0",
		"/api/v1/namespaces/shop/namespaces", "/apis/example.com/v1/namespaces/shop/planets",
		"/apis/example.com/v1/namespaces/shop/planets/earth",
		"/api/v1/namespaces/shop/", "/api/v1/namespaces/", "/api/v1/namespaces/shop/configmaps/",
		"/api/v1/namespaces/shop/configmaps/settings/", "/apis/example.com/v1/planets/",
		"/apis/example.com/v1/planets/earth/", "/api/v1//pods", "//api/v1/pods", "/api//v1/pods",
		"/api/v1/namespaces//configmaps", "/api/v1/namespaces/shop//configmaps",
		"/api/v1/namespaces/shop/configmaps//settings", "/api/v1/./pods", "/api/v1/../v1/pods",
		"/api/v1/namespaces/shop/configmaps/..", "/api/v1/namespaces/shop/configmaps/%2E%2E",
		"/api/v1/namespaces/shop/configmaps/sett%69ngs", "/api/v1/namespaces/sh%6Fp/configmaps/settings",
		"/api/v1/namespaces/shop/configmaps/a%2Fb",
		"/api/v1/namespaces/shop/configmaps/a%20b", "/api/v1/namespaces/shop/configmaps/A",
		"/api/v1/namespaces/shop/configmaps/%00", "/api/v1/namespaces/shop/configmaps/%C3%A4",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", "/API/v1/pods", "/api/V1/pods", "/api/v1/Pods",
		"/api/v1/pod",
		"/apis/apps/v1/namespaces/shop/deployments/web/extra/parts",
		"/api/v1/namespaces/shop/configmaps/settings/extra", "/api/v1/namespaces/shop/pods/db-0/extra",
		"/apis/example.com/v1/namespaces/shop/widgets/one/extra",
		"/api/v1/namespaces/shop/configmaps/settings#fragment", "/api/v1/namespaces/shop/configmaps/settings?",
		"/api/v1/namespaces/shop/configmaps/settings?x",
		"/api/v1/namespaces/shop/pods/db-0?exact=true&export=true", "/api/v1/componentstatuses/etcd-0",
		"/api/v1/bindings", "/api/v1/namespaces/shop/bindings", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io", "/apis/authorization.k8s.io/v1",
	)
	add("paths", tableAccept, "/api/v1/namespaces/shop/configmaps/absent", "/api/v1/namespaces/absent/configmaps",
		"/apis/example.com/v1/namespaces/absent/widgets", "/api/v1/nothings", "/apis/nothing.example.com/v1/nothings")
	add("paths", protobufAccept, "/api/v1/namespaces/shop/configmaps/absent", "/api/v1/namespaces/absent/configmaps",
		"/api/v1/nothings", "/apis/nothing.example.com/v1/nothings")
	add("documents", "",
		"/", "/version", "/version/", "/healthz", "/livez", "/readyz", "/healthz/", "/healthz/ping", "/livez/ping",
		"/readyz/ping", "/readyz/nothing", "/healthz?verbose", "/livez?verbose", "/readyz?verbose",
		"/readyz?verbose&exclude=etcd", "/logs", "/.well-known/openid-configuration", "/openid/v1/jwks", "/openapi",
		"/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openapi/v3/api/v1", "/openapi/v3/apis/example.com/v1",
		"/openapi/v3/apis/nothing/v1", "/openapi/v3/version", "/nothing", "/index.html", "/favicon.ico", "/flagz",
		"/clusters", "/fleet",
	)
	for _, accept := range []string{
		jsonAccept, "application/yaml", protobufAccept, "text/html",
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
		"application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
		"application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "*/*", "application/*",
	} {
		add("documents", accept, "/version", "/healthz", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
			"/openapi/v3/apis/example.com/v1")
	}
	for _, uri := range []string{"/metrics", "/statusz", "/debug/pprof/", "/api/v1/componentstatuses"} {
		out = append(out, request{Category: "documents", URI: uri, Fleeting: true})
	}
	for _, doc := range []string{"api/v1", "apis/apps/v1", "apis/example.com/v1", "version"} {
		add("documents", jsonAccept, "/openapi/v3/"+doc+"?hash=${hash:"+doc+"}", "/openapi/v3/"+doc+"?hash=OLD")
		add("documents", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
			"/openapi/v3/"+doc+"?hash=${hash:"+doc+"}")
	}
	return slices.Concat(out, discoveryEdges(), methodEdges(), belowEdges())
}

// discoveryEdges returns requests for discovery.
func discoveryEdges() []request {
	var out []request
	roots := []string{
		"/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/example.com", "/apis/example.com/v1",
		"/apis/autoscaling", "/apis/autoscaling/v2", "/apis/beta.example.com", "/apis/beta.example.com/v1alpha1",
		"/apis/events.k8s.io/v1",
	}
	for _, uri := range append(roots, "/api/", "/apis/", "/api/v1/", "/apis/apps/", "/apis/apps/v1/",
		"/apis/example.com/v1/", "/apis/autoscaling/v1", "/apis/example.com/v1beta1", "/apis/coordination.k8s.io/v1") {
		for _, accept := range []string{
			"", jsonAccept, "application/yaml", protobufAccept, "*/*", "text/html", aggregatedAccept,
			aggregatedAccept + ",application/json",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
			"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
			"application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			"application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
			"application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList",
			"application/json;as=APIGroupDiscoveryList", tableAccept,
		} {
			out = append(out, request{Category: "discovery", URI: uri, Accept: accept})
		}
	}
	for _, uri := range []string{"/api", "/apis", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"} {
		for _, accept := range []string{jsonAccept, aggregatedAccept} {
			out = append(out, request{Category: "discovery", URI: uri, Accept: accept, IfNoneMatch: true})
			out = append(out, request{Category: "discovery", URI: uri, Accept: accept, Encoding: "gzip"})
		}
	}
	return out
}

// methodEdges returns requests that do not read. None changes anything: they lack a body,
// or have dryRun.
func methodEdges() []request {
	var out []request
	for _, uri := range []string{
		"/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/shop/configmaps/settings",
		"/apis/example.com/v1/namespaces/shop/widgets/one", "/api/v1/namespaces/shop/pods/db-0/eviction", "/api/v1",
		"/apis", "/version", "/healthz", "/openapi/v3", "/api/v1/nothings",
	} {
		for _, method := range []string{
			http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodTrace, "PROPFIND",
		} {
			out = append(out, request{
				Category: "methods", Method: method, URI: uri + "?dryRun=All", Accept: jsonAccept,
			})
		}
	}
	return out
}
