// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/watershed-project/watershed/reflector"
)

func TestParseList(t *testing.T) {
	for in, want := range map[string]string{
		"https://h:6443/api/v1/pods":                                            "https://h:6443|/v1, Resource=pods||",
		"https://h/api/v1/namespaces":                                           "https://h|/v1, Resource=namespaces||",
		"https://h/api/v1/namespaces/shop/pods?limit=5":                         "https://h|/v1, Resource=pods|shop|",
		"https://h/k8s/clusters/c-1/apis/apps/v1/deployments":                   "https://h/k8s/clusters/c-1|apps/v1, Resource=deployments||",
		"https://h/apis/apps/v1/namespaces/a/deployments?labelSelector=b&a=%20": "https://h|apps/v1, Resource=deployments|a|a=+&labelSelector=b",
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

// TestSample_uid has servers that respond as an API server does after its start, and with
// other rights.
func TestSample_uid(t *testing.T) {
	for _, tt := range []struct {
		namespace, ready int // the status of each response
		later            int // the status for the namespace from the third request on
		uid              string
		fails            bool
		reason           reflector.Reason
	}{
		{namespace: 200, ready: 500, uid: "u-1"},
		{namespace: 403, ready: 200},
		{namespace: 403, ready: 404},
		{namespace: 403, ready: 403, later: 200, uid: "u-1"},
		{namespace: 403, ready: 403},
		{namespace: 403, ready: 500, fails: true, reason: reflector.Busy},
		{namespace: 404, ready: 500},
		{namespace: 401, ready: 500, fails: true},
		{namespace: 429, ready: 200, fails: true, reason: reflector.Busy},
		{namespace: 503, ready: 200, fails: true, reason: reflector.Busy},
	} {
		t.Run(fmt.Sprintf("%d and %d, then %d", tt.namespace, tt.ready, tt.later), func(t *testing.T) {
			t.Parallel() // some wait
			requests := atomic.Int32{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					w.WriteHeader(tt.ready)
					return
				}
				status := tt.namespace
				if requests.Add(1) >= 3 && tt.later != 0 {
					status = tt.later
				}
				w.WriteHeader(status)
				fmt.Fprint(w, `{"metadata":{"uid":"u-1"}}`)
			}))
			defer server.Close()
			u, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			s := sample{server: *u, header: http.Header{}, next: server.Client().Transport}
			uid, err := s.uid(t.Context())
			if uid != tt.uid || (err != nil) != tt.fails || reflector.ReasonOf(err) != tt.reason {
				t.Errorf("UID %q, %v (%v)", uid, err, reflector.ReasonOf(err))
			}
		})
	}
}
