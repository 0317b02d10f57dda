// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A request has the attributes that kube-apiserver would authorize, on the path below the
// cluster or the fleet that it addresses.
func TestParse_attributes(t *testing.T) {
	for _, c := range []struct {
		method, url string
		cluster     string
		fleet       bool
		want        Attributes
	}{
		{"GET", "/clusters", "", false, Attributes{Verb: "get", Path: "/clusters"}},
		{"GET", "/clusters//api/v1/pods", "", false, Attributes{Verb: "get", Path: "/clusters//api/v1/pods"}},
		{"GET", "/clusters/eu/version", "eu", false, Attributes{Verb: "get", Path: "/version"}},
		{"GET", "/fleet/apis", "", true, Attributes{Verb: "get", Path: "/apis"}},
		{
			"GET", "/clusters/eu/api/v1/pods", "eu", false, Attributes{
				Verb: "list", Path: "/api/v1/pods", IsResource: true, Version: "v1", Resource: "pods",
			},
		},
		{
			"HEAD", "/clusters/eu/api/v1/pods", "eu", false, Attributes{
				Verb: "list", Path: "/api/v1/pods", IsResource: true, Version: "v1", Resource: "pods",
			},
		},
		{
			"GET", "/fleet/api/v1/pods?watch=1", "", true, Attributes{
				Verb: "watch", Path: "/api/v1/pods", IsResource: true, Version: "v1", Resource: "pods",
			},
		},
		{
			"GET", "/clusters/eu/api/v1/pods?watch=false", "eu", false, Attributes{
				Verb: "list", Path: "/api/v1/pods", IsResource: true, Version: "v1", Resource: "pods",
			},
		},
		{
			"GET", "/clusters/eu/api/v1/watch/namespaces/n/pods/p", "eu", false, Attributes{
				Verb:       "watch",
				Path:       "/api/v1/watch/namespaces/n/pods/p",
				IsResource: true,
				Version:    "v1",
				Resource:   "pods",
				Namespace:  "n",
				Name:       "p",
			},
		},
		{
			"GET", "/clusters/eu/apis/apps/v1/namespaces/n/deployments/d/scale", "eu", false, Attributes{
				Verb:        "get",
				Path:        "/apis/apps/v1/namespaces/n/deployments/d/scale",
				IsResource:  true,
				Group:       "apps",
				Version:     "v1",
				Resource:    "deployments",
				Namespace:   "n",
				Name:        "d",
				Subresource: "scale",
			},
		},
		{
			"GET", "/clusters/eu/api/v1/namespaces/n", "eu", false, Attributes{
				Verb:       "get",
				Path:       "/api/v1/namespaces/n",
				IsResource: true,
				Version:    "v1",
				Resource:   "namespaces",
				Namespace:  "n",
				Name:       "n",
			},
		},
		{
			"GET", "/clusters/eu/api/v1/namespaces/n/status", "eu", false, Attributes{
				Verb:        "get",
				Path:        "/api/v1/namespaces/n/status",
				IsResource:  true,
				Version:     "v1",
				Resource:    "namespaces",
				Namespace:   "n",
				Name:        "n",
				Subresource: "status",
			},
		},
		{
			"GET", "/clusters/eu/api/v1/namespaces/n/secrets?fieldSelector=metadata.name%3Ds", "eu", false, Attributes{
				Verb:          "list",
				Path:          "/api/v1/namespaces/n/secrets",
				IsResource:    true,
				Version:       "v1",
				Resource:      "secrets",
				Namespace:     "n",
				Name:          "s",
				FieldSelector: "metadata.name=s",
			},
		},
		{
			"DELETE", "/clusters/eu/api/v1/namespaces/n/pods", "eu", false, Attributes{
				Verb:       "deletecollection",
				Path:       "/api/v1/namespaces/n/pods",
				IsResource: true,
				Version:    "v1",
				Resource:   "pods",
				Namespace:  "n",
			},
		},
		{
			"PATCH", "/clusters/eu/api/v1/namespaces/n/pods/p", "eu", false, Attributes{
				Verb:       "patch",
				Path:       "/api/v1/namespaces/n/pods/p",
				IsResource: true,
				Version:    "v1",
				Resource:   "pods",
				Namespace:  "n",
				Name:       "p",
			},
		},
	} {
		q := parse(httptest.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody))
		if q.Cluster != c.cluster || q.Fleet != c.fleet || q.Attributes() != c.want {
			t.Errorf("%s %s: cluster %q, fleet %t, %+v; want cluster %q, fleet %t, %+v", c.method, c.url, q.Cluster,
				q.Fleet, q.Attributes(), c.cluster, c.fleet, c.want)
		}
	}
}
