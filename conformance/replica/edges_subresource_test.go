// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"io"
	"net/http"
	"path"
	"strings"
	"testing"
)

// subresourceEdges returns requests for one subresource of an object, in the most
// important forms.
func subresourceEdges(object, name string) []request {
	var out []request
	add := func(accept, uri string) {
		out = append(out, request{Category: "subresources", URI: uri, Accept: accept})
	}
	for _, accept := range []string{
		"", jsonAccept, "application/yaml", protobufAccept, protobufAccept + "," + jsonAccept, tableAccept,
		tablesAccept, objectAccept, metadataAccept, "text/html",
	} {
		add(accept, object+"/"+name)
	}
	absent := path.Dir(object) + "/absent/" + name
	for _, accept := range []string{jsonAccept, protobufAccept, tableAccept} {
		add(accept, absent)
	}
	for _, query := range []string{"resourceVersion=0", "resourceVersion=x", "watch=true", "timeout=x", "export=true"} {
		add(jsonAccept, object+"/"+name+"?"+query)
	}
	add(tableAccept, object+"/"+name+"?includeObject=Object")
	return out
}

// belowEdges returns requests for subresources that do not exist or cannot be read, and
// with other unusual parts.
func belowEdges() []request {
	var out []request
	add := func(accept string, uris ...string) {
		for _, uri := range uris {
			out = append(out, request{Category: "subresources", URI: uri, Accept: accept})
		}
	}
	const (
		scale, status = "/apis/apps/v1/namespaces/shop/deployments/web/scale",
			"/api/v1/namespaces/shop/pods/db-0/status"
		customScale, customStatus = "/apis/example.com/v1/namespaces/shop/widgets/one/scale",
			"/apis/example.com/v1/namespaces/shop/widgets/one/status"
		resize = "/api/v1/namespaces/shop/pods/db-0/resize"
	)
	for _, uri := range []string{scale, status, customScale, customStatus, resize} {
		for _, accept := range accepts {
			add(accept, uri)
		}
		for _, query := range []string{
			"resourceVersion=999999999", "resourceVersion=999999999&watch=true", "resourceVersion=1",
			"resourceVersion=-1", "resourceVersion=x&watch=1", "watch=true&timeoutSeconds=1", "watch=false", "watch",
			"limit=x", "limit=1", "labelSelector=!!", "fieldSelector=x", "resourceVersionMatch=Exact", "continue=x",
			"pretty=true", "export=false", "timeout=1s", "includeObject=None", "includeObject=nothing",
		} {
			add(jsonAccept, uri+"?"+query)
			add(tableAccept, uri+"?"+query)
		}
		add(jsonAccept, uri+"/", uri+"/extra", uri+"/extra/more")
	}
	// Some cannot be read, whether the object exists or not.
	for _, accept := range []string{jsonAccept, protobufAccept, "text/html"} {
		add(accept, "/api/v1/namespaces/shop/finalize", "/api/v1/namespaces/absent/finalize",
			"/api/v1/namespaces/shop/pods/db-0/binding", "/api/v1/namespaces/shop/pods/db-0/eviction",
			"/api/v1/namespaces/shop/pods/absent/eviction",
			"/api/v1/namespaces/shop/serviceaccounts/robot/token",
			"/api/v1/namespaces/shop/pods/db-0/eviction?watch=true")
		// Some do not exist.
		add(accept, "/apis/example.com/v1/namespaces/shop/widgets/one/extra",
			"/apis/example.com/v1/namespaces/shop/widgets/absent/extra", "/apis/example.com/v1/planets/earth/status",
			"/apis/example.com/v1/planets/earth/scale", "/api/v1/namespaces/shop/configmaps/settings/status",
			"/apis/apps/v1/namespaces/shop/daemonsets/agent/scale",
			"/apis/apps/v1/namespaces/shop/deployments/web/resize", "/api/v1/namespaces/shop/scale")
		// Some are at the wrong path.
		add(accept, "/api/v1/pods/db-0/status", "/apis/apps/v1/deployments/web/scale",
			"/apis/example.com/v1/widgets/one/status", "/apis/example.com/v1/namespaces/shop/planets/earth/status",
			"/api/v1/namespaces/shop/nodes/node-0/status",
			"/apis/apps/v1/watch/namespaces/shop/deployments/web/status",
			"/apis/example.com/v1/watch/namespaces/shop/widgets/one/status",
			"/apis/example.com/v1/watch/namespaces/shop/widgets/one/extra", "/api/v1/watch/namespaces/shop/status",
			"/api/v1/namespaces/shop/status/extra", "/api/v1/namespaces/shop/finalize/extra")
	}
	add(jsonAccept, "/api/v1/namespaces/shop/pods/a%20b/status", "/api/v1/namespaces/shop/pods/%2E%2E/status",
		"/apis/example.com/v1/namespaces/shop/widgets/A/scale",
		"/apis/example.com/v1/namespaces/absent/widgets/one/scale",
		"/apis/apps/v1/namespaces/absent/deployments/web/scale")
	for _, encoding := range []string{"gzip", "identity"} {
		out = append(out, request{
			Category: "subresources", URI: status, Accept: jsonAccept, Encoding: encoding,
		}, request{Category: "subresources", URI: scale, Accept: jsonAccept, Encoding: encoding})
	}
	// Subresources that the server forwards. Its responses are those of a cluster without
	// kubelets.
	add(jsonAccept, "/api/v1/namespaces/shop/pods/db-0/log", "/api/v1/namespaces/shop/pods/db-0/log?follow=true",
		"/api/v1/namespaces/shop/pods/db-0/exec?command=ls", "/api/v1/namespaces/shop/pods/db-0/attach",
		"/api/v1/namespaces/shop/pods/db-0/portforward", "/api/v1/namespaces/shop/pods/db-0/proxy/",
		"/api/v1/namespaces/shop/services/web/proxy/index.html", "/api/v1/nodes/node-0/proxy/metrics")
	return out
}

// readBelow are subresources that are requested from the replica alone.
var readBelow = []string{
	"/apis/apps/v1/namespaces/shop/deployments/web/scale", "/apis/example.com/v1/namespaces/shop/widgets/one/scale",
	"/api/v1/namespaces/shop/pods/db-0/status", "/apis/example.com/v1/namespaces/shop/widgets/one/status",
}

// TestSubresources_ofFleet: subresources contain the name of their cluster, and are
// otherwise the same.
func TestSubresources_ofFleet(t *testing.T) {
	w := theComparedCluster(t)
	if w.process == nil {
		t.Skip("a server is no fleet")
	}
	all, err := newSubject("fleet", w.process.Config(), "/fleet")
	if err != nil {
		t.Fatal(err)
	}
	defer all.client.CloseIdleConnections()
	read := func(s *subject, r request) map[string]any {
		t.Helper()
		a := s.send(t.Context(), r)
		v, err := value(a)
		m, ok := v.(map[string]any)
		if a.err != nil || err != nil || !ok || a.code != http.StatusOK {
			t.Fatalf("%s of %s: %d %v %v %s", r, s.name, a.code, a.err, err, a.body)
		}
		return m
	}
	for _, uri := range readBelow {
		r := request{Method: http.MethodGet, URI: uri, Accept: jsonAccept}
		got, want := read(all, r), read(w.copy, r)
		if cluster := text(got, "metadata", "annotations", "watershed.dev/cluster"); cluster != clusterName {
			t.Errorf("%s is of cluster %q", r, cluster)
		}
		c := comparison{request: r}
		c.diff("", without(want, "metadata", "annotations"), without(got, "metadata", "annotations"))
		r.Accept = tableAccept
		got, want = read(all, r), read(w.copy, r)
		columns, cells := at(got, "columnDefinitions").([]any), at(at(got, "rows").([]any)[0], "cells").([]any)
		last := len(columns) - 1
		if text(columns[last], "name") != "Cluster" || cells[last] != clusterName || len(cells) != len(columns) {
			t.Errorf("%s ends with %v %v", r, columns[last], cells)
		}
		c.diff("", at(want, "columnDefinitions"), columns[:last])
		c.diff("/cells/", at(at(want, "rows").([]any)[0], "cells"), cells[:last])
		if len(c.found) > 0 {
			t.Errorf("%s: the cluster has, the fleet has:\n\t%s", r, findings(c.found))
		}
	}
	for uri, code := range map[string]int{
		"/apis/apps/v1/namespaces/shop/deployments/absent/scale": http.StatusNotFound,
		"/apis/apps/v1/namespaces/shop/deployments/web/extra":    http.StatusNotFound,
		"/api/v1/namespaces/shop/pods/db-0/eviction":             http.StatusMethodNotAllowed,
		"/api/v1/namespaces/shop/pods/db-0/log":                  http.StatusMethodNotAllowed,
	} {
		if a := all.send(t.Context(), request{Method: http.MethodGet, URI: uri}); a.err != nil || a.code != code {
			t.Errorf("%s: %d %v, want %d", uri, a.code, a.err, code)
		}
	}
}

// TestSubresources_ofOrigin: a client that requests it reads the subresources that the
// copy has from the cluster, and no others.
func TestSubresources_ofOrigin(t *testing.T) {
	w := theComparedCluster(t)
	if w.process == nil {
		t.Skip("the server is the origin")
	}
	consistent := http.Header{"Watershed-Read": {"consistent"}}
	for _, uri := range append([]string{
		"/api/v1/namespaces/shop/pods/db-0/log", "/api/v1/namespaces/shop/pods/db-0/eviction",
	}, readBelow...) {
		resp, err := w.copy.do(t.Context(), request{Method: http.MethodGet, URI: uri, Accept: jsonAccept}, consistent)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		passed := resp.Header.Get("Watershed-Source") == "origin"
		if strings.HasSuffix(uri, "/log") || strings.HasSuffix(uri, "/eviction") {
			if passed || resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s: %d, passed on is %t", uri, resp.StatusCode, passed)
			}
			continue
		}
		if a := w.server.send(t.Context(), request{
			Method: http.MethodGet, URI: uri, Accept: jsonAccept,
		}); !passed || string(body) != string(a.body) {
			t.Errorf("%s: passed on is %t: %s, want %s", uri, passed, body, a.body)
		}
	}
}
