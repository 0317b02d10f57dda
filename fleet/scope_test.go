// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
	"github.com/watershed-project/watershed/wire"
)

// inNamespace returns the keys of a cluster's pods in a namespace.
func inNamespace(c *simulated.Cluster, namespace string) map[string]string {
	all := map[string]string{}
	for i := range c.Pods() {
		if p := c.Pod(i); p != nil && p.Namespace == namespace {
			all[p.Namespace+"/"+p.Name] = p.ResourceVersion
		}
	}
	return all
}

// TestScope_credentialsOfOneNamespace mirrors a namespace with credentials that allow
// nothing else.
func TestScope_credentialsOfOneNamespace(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 300, Namespaces: 10, Types: 2})
	c := s.Cluster(0)
	one, other := c.Pod(0).Namespace, c.Pod(299).Namespace
	at := newFront(t)
	at.allowed = func(path string) bool {
		inside := strings.Contains(path, "/namespaces/")
		discovery := len(strings.Split(strings.Trim(path, "/"), "/")) < 4 && !strings.HasPrefix(path, "/api/v1/")
		return inside && strings.Contains(path, "/namespaces/"+one+"/") || !inside && discovery
	}
	at.lead(t, c, "")
	d, err := directory.NewStatic(fleet.Entry{Name: "one", Config: at.config(), Scope: &fleet.Scope{Namespace: one}})
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, d, &fleet.Options{Scope: fleet.Scope{Namespace: other}, History: 1 << 20, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, _ := f.Member("one")
	if s := m.Status(); s.State != fleet.Live || s.Scope.Namespace != one || m.Scope() != s.Scope || s.Scope.Whole() {
		t.Errorf("the member is %s, limited to %s: %v, %v", s.State, s.Scope, s.Err, s.Failing)
	}
	pods := fleet.OfResource[*wire.Object](f, podResource)
	same := func() error {
		want := inNamespace(c, one)
		if n := pods.Len(); n != len(want) || n == 0 {
			return fmt.Errorf("%d pods of %d", n, len(want))
		}
		for key, o := range pods.All() {
			if want[key.Object] != fmt.Sprint(o.Version()) {
				return fmt.Errorf("%s is at %d, not %s", key, o.Version(), want[key.Object])
			}
		}
		return nil
	}
	expect.Eventually(t, 5*time.Second, same)
	c.Touch(299) // in another namespace
	version := c.Touch(0)
	expect.Eventually(t, 5*time.Second, same)
	// The feed has the version of the server.
	feed, ok := m.Feed(podResource)
	if !ok {
		t.Fatal("there is no feed of pods")
	}
	expect.Eventually(t, 5*time.Second, func() error {
		if now, err := feed.Now(); err != nil || now.Version < version {
			return fmt.Errorf("the feed is before version %d: %w", version, err)
		}
		return nil
	})
	for _, r := range m.Served() {
		if !r.Namespaced {
			t.Errorf("%s is mirrored, which has no namespace", r.Resource)
		}
	}
	if v1 := corev1.SchemeGroupVersion; m.Excludes(v1.WithResource("pods")) ||
		!m.Excludes(v1.WithResource("namespaces")) {
		t.Error("the scope excludes pods, or does not exclude namespaces")
	}
}

// TestScope_change changes the scope of a cluster: it is mirrored again from the start.
func TestScope_change(t *testing.T) {
	s := simulate(t, &simulated.Options{Clusters: 1, Pods: 300, Namespaces: 10})
	c := s.Cluster(0)
	one, other := c.Pod(0).Namespace, c.Pod(299).Namespace
	scoped := func(name, namespace string) fleet.Entry {
		return fleet.Entry{Name: name, Config: c.Config(), Scope: &fleet.Scope{Namespace: namespace}}
	}
	d, err := directory.NewStatic(scoped("one", one), scoped("two", one), scoped("three", other))
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, d, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	if err := f.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Two names with one scope are one copy, two scopes are two.
	if n := len(f.Members()); n != 2 {
		t.Errorf("%d members for two scopes", n)
	}
	pods := fleet.OfResource[*wire.Object](f, podResource)
	w := watchView(t, "pods", pods)
	want := func(namespace ...string) {
		t.Helper()
		expect.Eventually(t, 20*time.Second, func() error {
			n := 0
			for _, name := range namespace {
				n += len(inNamespace(c, name))
			}
			if got := pods.Len(); got != n {
				return fmt.Errorf("%d pods, not %d", got, n)
			}
			return w.behind(pods)
		})
	}
	want(one, other)
	if err := d.Set(scoped("one", other)); err != nil {
		t.Fatal(err)
	}
	want(other)
	if err := d.Set(fleet.Entry{Name: "one", Config: c.Config()}); err != nil {
		t.Fatal(err)
	}
	expect.Eventually(t, 20*time.Second, func() error {
		if n := pods.Len(); n != 300 {
			return fmt.Errorf("%d pods", n)
		}
		return w.behind(pods)
	})
}

func TestScope_isValidated(t *testing.T) {
	for _, scope := range []fleet.Scope{{Namespace: "a/b"}, {LabelSelector: "a in b"}, {Namespace: ".."}} {
		if _, err := fleet.New(newRoster(), &fleet.Options{Scope: scope}); err == nil {
			t.Errorf("%+v is taken for a scope", scope)
		}
	}
	for scope, want := range map[fleet.Scope]string{
		{}:                                   "the whole cluster",
		{Namespace: "a"}:                     "namespace a",
		{Namespace: "a", LabelSelector: "b"}: "namespace a, label selector b",
	} {
		if scope.String() != want || scope.Whole() != (scope == fleet.Scope{}) {
			t.Errorf("%+v is %q", scope, scope)
		}
	}
}
