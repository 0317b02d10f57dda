// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/reflector"
)

// TestCluster_UID has servers that respond as an API server does after its start, and with
// other rights.
func TestCluster_UID(t *testing.T) {
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
		{namespace: 429, ready: 200, fails: true, reason: reflector.Busy},
		{namespace: 500, ready: 200, fails: true, reason: reflector.Internal},
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
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				if status == http.StatusOK {
					fmt.Fprint(w,
						`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"u-1"}}`)
				}
			}))
			defer server.Close()
			uid, err := open(t, &rest.Config{Host: server.URL}).UID(patient(t))
			if uid != tt.uid || (err != nil) != tt.fails || reflector.ReasonOf(err) != tt.reason {
				t.Errorf("UID %q, %v (%v)", uid, err, reflector.ReasonOf(err))
			}
		})
	}
}
