// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/watershed-project/watershed/kube"
)

func TestParseList(t *testing.T) {
	for in, want := range map[string]string{
		"https://h:6443/api/v1/pods":                    "https://h:6443|/v1, Resource=pods||",
		"https://h/api/v1/namespaces":                   "https://h|/v1, Resource=namespaces||",
		"https://h/api/v1/namespaces/shop/pods?limit=5": "https://h|/v1, Resource=pods|shop|",
		"https://h/k8s/clusters/c-1/apis/apps/v1/deployments": "https://h/k8s/clusters/c-1|apps/v1, " +
			"Resource=deployments||",
		"https://h/apis/apps/v1/namespaces/a/deployments?labelSelector=b&a=%20": "https://h|apps/v1, " +
			"Resource=deployments|a|a=+&labelSelector=b",
		"https://h/api":                                  "",
		"https://h/apis":                                 "",
		"https://h/apis/apps":                            "",
		"https://h/apis/apps/v1":                         "",
		"https://h/api/v1":                               "",
		"https://h/api/v1/namespaces/kube-system":        "",
		"https://h/api/v1/namespaces/shop/pods/cart":     "",
		"https://h/api/v1/namespaces/shop/pods/cart/log": "",
		"https://h/version":                              "",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if s := parseList(u); s != nil {
			got = fmt.Sprintf("%v|%v|%s|%s", &s.server, s.resource, s.namespace, s.query)
		}
		if got != want {
			t.Errorf("%s: %q instead of %q", in, got, want)
		}
	}
}

// TestSample_cluster has a server that responds only to the credentials of the sample.
func TestSample_cluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer secret" || r.UserAgent() != "operator/1" ||
			len(r.Header.Values("Accept")) != 1:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/below/api/v1/namespaces/kube-system":
			fmt.Fprint(w,
				`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"u-1"}}`)
		case r.URL.Path == "/below/apis/example.com/v1":
			fmt.Fprint(w,
				`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"boats","kind":"Boat","namespaced":true,"verbs":["list","watch"]}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL + "/below/apis/example.com/v1/boats")
	if err != nil {
		t.Fatal(err)
	}
	s := parseList(u)
	s.header = http.Header{
		"Authorization": {"Bearer secret"},
		"User-Agent":    {"operator/1"},
		"Accept":        {"application/vnd.kubernetes.protobuf"},
	}
	s.next = server.Client().Transport
	cluster, err := s.cluster()
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := cluster.UID(t.Context()); uid != "u-1" || err != nil {
		t.Errorf("UID %q, %v", uid, err)
	}
	source, err := cluster.Source(kube.Query{Resource: s.resource})
	if err != nil {
		t.Fatal(err)
	}
	if kind, err := source.Kind(t.Context()); err != nil || kind.Kind != "Boat" {
		t.Errorf("kind %v, %v", kind, err)
	}
}
