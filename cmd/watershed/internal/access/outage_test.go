// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package access_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// A cluster that does not answer gives 503, never 401 or 403, and below /fleet it is left out
// after a second and counted. When it answers again, so does the replica.
func TestOutage(t *testing.T) {
	a, b := kubetest.Start(t, &kubetest.Options{Name: "a", Users: attackUsers}),
		kubetest.Start(t, &kubetest.Options{Name: "b", Users: attackUsers})
	w := &attackedReplica{a: a, b: b}
	read := rbacv1.PolicyRule{
		Verbs:     []string{"get", "list", "watch"},
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
	}
	for _, k := range []*kubetest.Cluster{a, b} {
		populate(t, k)
		w.grant(t, k, "oidc:cy", "n1", read)
	}
	proxy := b.Proxy(t)
	opts := access.Options{Crossing: access.Crossing{Home: "a", Users: []string{"oidc:*"}}}
	w.guardedReplica = startGuardedOf(t, opts,
		[]*kubetest.Cluster{a, b}, []fleet.Entry{
			{Name: "a", Config: a.Config()},
			{Name: "b", Config: proxy.Config(b.Config())},
		}, false)
	cy, other := w.token(a, "oidc:cy"), w.token(b, "oidc:cy")
	left := func() bool {
		began := time.Now()
		got := w.expectCode(t, http.StatusOK, cy, "/fleet"+configmaps)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the list takes %s", took)
		}
		return strings.Contains(strings.Join(got.header.Values("Warning"), " "), "1 cluster is left out")
	}
	w.expectCode(t, http.StatusOK, other, "/clusters/b"+configmaps)
	if left() {
		t.Error("a cluster is left out that answers")
	}

	proxy.Stall()
	deadline := time.Now().Add(30 * time.Second)
	for w.get(t, other, "/clusters/b"+configmaps).code == http.StatusOK { // from the caches, for ten seconds
		if time.Now().After(deadline) {
			t.Fatal("decisions do not expire while the cluster does not answer")
		}
		time.Sleep(time.Second)
	}
	w.expectCode(t, http.StatusServiceUnavailable, other, "/clusters/b"+configmaps)
	if !left() {
		t.Error("the cluster that does not answer is not left out")
	}
	w.expectCode(t, http.StatusOK, cy, "/clusters/a"+configmaps)

	proxy.Resume()
	expect.Soon(t, "the cluster comes back", func() bool {
		return w.get(t, other, "/clusters/b"+configmaps).code == http.StatusOK && !left()
	})
}
