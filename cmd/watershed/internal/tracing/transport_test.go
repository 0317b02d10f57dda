// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package tracing

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/expect"
)

// TestReads_areBounded has more clusters than are kept.
func TestReads_areBounded(t *testing.T) {
	var r reads
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	now := time.Unix(1000, 0)
	first := r.of("first", pods)
	expect.Equal(t, r.last("first", pods.GroupResource(), now), now) // it was not read yet
	first.Store(time.Unix(900, 0).UnixNano())
	expect.Equal(t, r.last("first", pods.GroupResource(), now), time.Unix(900, 0))
	for i := range mostReads {
		r.of(fmt.Sprint(i), pods)
	}
	n := 0
	r.times.Range(func(any, any) bool { n++; return true })
	if n > 1 {
		t.Errorf("%d times are kept", n)
	}
	expect.Equal(t, r.last("first", pods.GroupResource(), now), now)
}

func TestTarget(t *testing.T) {
	for url, want := range map[string]string{
		"https://h/api/v1/pods":                                     "/v1, Resource=pods false",
		"https://h/api/v1/namespaces":                               "/v1, Resource=namespaces false",
		"https://h/api/v1/namespaces/a/pods?watch=true":             "/v1, Resource=pods true",
		"https://h/prefix/apis/apps/v1/deployments?watch=true":      "apps/v1, Resource=deployments true",
		"https://h/apis/apps/v1/namespaces/a/deployments":           "apps/v1, Resource=deployments false",
		"https://h/apis/apps/v1":                                    "/, Resource= false",
		"https://h/api/v1":                                          "/, Resource= false",
		"https://h/version":                                         "/, Resource= false",
		"https://h/apis/apps/v1/namespaces/a/deployments/web/scale": "/, Resource= false",
	} {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		expect.NoError(t, err)
		at, watch := target(req)
		expect.Equal(t, fmt.Sprint(at, " ", watch), want)
	}
}
