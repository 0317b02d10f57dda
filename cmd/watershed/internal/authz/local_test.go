// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/replica"
)

// localCluster is a cluster with RBAC objects, of which policy is the copy. actual is what its
// authorizer uses, and veto can deny a request before it.
type localCluster struct {
	*stub
	policy, actual *rbac.Policy
	veto           func(resource string) bool
	log            bytes.Buffer
	local          *Local
	reviewer       *Reviewer
	fresh          atomic.Bool
}

func newLocalCluster(t *testing.T) *localCluster {
	c := &localCluster{stub: &stub{}, policy: rbac.New(), actual: rbac.New()}
	c.fresh.Store(true)
	for _, p := range []*rbac.Policy{c.policy, c.actual} {
		p.SetClusterRole(&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "discovery"},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/api"}}},
		})
		p.SetClusterRoleBinding(
			bound("discovery", "discovery", rbacv1.Subject{Kind: "Group", Name: "system:authenticated"}),
		)
		p.SetClusterRole(&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "view"},
			Rules: []rbacv1.PolicyRule{
				{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"*"}},
			},
		})
		p.SetClusterRoleBinding(bound("viewers", "view", rbacv1.Subject{Kind: "User", Name: "alice"}))
	}
	c.handle(func(_ *http.Request,
		spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int, error) {
		return c.decides(spec), 0, nil
	})
	c.reviewer = c.stub.reviewer(t, nil)
	c.local = NewLocal(c.policy, c.reviewer, &LocalOptions{
		Cluster: "stub", Fresh: c.fresh.Load, Logger: slog.New(slog.NewTextHandler(&c.log, nil)),
	})
	t.Cleanup(c.local.Close)
	return c
}

func bound(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{subject},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: role},
	}
}

// decides is the authorizer of the cluster.
func (c *localCluster) decides(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	a := replica.Attributes{}
	if r := spec.ResourceAttributes; r != nil {
		a = replica.Attributes{
			IsResource:  true,
			Verb:        r.Verb,
			Group:       r.Group,
			Version:     r.Version,
			Resource:    r.Resource,
			Subresource: r.Subresource,
			Namespace:   r.Namespace,
			Name:        r.Name,
		}
	} else {
		a.Verb, a.Path = spec.NonResourceAttributes.Verb, spec.NonResourceAttributes.Path
	}
	if c.veto != nil && c.veto(a.Resource) {
		return authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "veto"}
	}
	allowed, reason := c.actual.Authorize(&authenticationv1.UserInfo{Username: spec.User, Groups: spec.Groups}, a)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: allowed, Reason: reason}
}

func (c *localCluster) ask(t *testing.T, user *authenticationv1.UserInfo, a replica.Attributes, allowed bool) {
	t.Helper()
	d, err := c.local.Authorize(t.Context(), user, a)
	mustDecide(t, d, err, allowed)
}

// prove makes the first request, which starts the probe, and waits for it.
func (c *localCluster) prove(t *testing.T) {
	t.Helper()
	c.ask(t, alice, getPod, true)
	synctest.Wait()
	if s := c.local.Stats(); !s.Proven || s.Local != 0 {
		t.Fatalf("after the probe: %+v", s)
	}
}

func secret(verb string) replica.Attributes {
	return replica.Attributes{
		Verb: verb, IsResource: true, Version: "v1", Resource: "secrets", Namespace: "a", Name: "x",
	}
}

func TestLocal_decidesAfterTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		calls := c.calls()
		for range 1000 {
			c.ask(t, alice, getPod, true)
			synctest.Wait()
		}
		d, err := c.local.Authorize(t.Context(), alice, getPod)
		mustDecide(t, d, err, true)
		expect.Equal(t, d.Reason, `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to User "alice"`)
		// The first is compared, and of the others at most one per second.
		if n := c.calls() - calls; n < 1 || n > 2 {
			t.Errorf("%d reviews for 1,000 requests of a user", n)
		}
		c.ask(t, alice, secret("list"), true)
		synctest.Wait()
		s := c.local.Stats()
		expect.Equal(t, []uint64{s.Local, s.Disagreements, s.Reviewed}, []uint64{1002, 0, 1})
		if s.Compared < 6 {
			t.Errorf("the first request for secrets was not compared: %+v", s)
		}
	})
}

// TestLocal_reviews checks which requests are not decided here.
func TestLocal_reviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		node := &authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:nodes"}}
		scoped := &authenticationv1.UserInfo{
			Username: "alice",
			Extra:    map[string]authenticationv1.ExtraValue{"scopes.authorization.openshift.io": {"user:info"}},
		}
		token := &authenticationv1.UserInfo{
			Username: "alice",
			Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"1"}},
		}
		master := &authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}
		for _, test := range []struct {
			what            string
			user            *authenticationv1.UserInfo
			a               replica.Attributes
			stale           bool
			allowed, review bool
		}{
			{what: "allowed", user: alice, a: getPod, allowed: true},
			{what: "denied", user: alice, a: secret("watch"), review: true},
			{what: "a node", user: node, a: getPod, allowed: true, review: true},
			{what: "a scoped token", user: scoped, a: getPod, allowed: true, review: true},
			{what: "a token", user: token, a: getPod, allowed: true},
			{what: "a stale copy", user: alice, a: getPod, stale: true, allowed: true, review: true},
			{what: "system:masters", user: master, a: secret("watch"), allowed: true},
		} {
			before := c.local.Stats()
			c.fresh.Store(!test.stale)
			c.ask(t, test.user, test.a, test.allowed)
			after := c.local.Stats()
			if reviewed := after.Reviewed > before.Reviewed; reviewed != test.review ||
				reviewed == (after.Local > before.Local) {
				t.Errorf("%s: reviewed %v, want %v", test.what, reviewed, test.review)
			}
		}
	})
}

// TestLocal_probeFails checks clusters that RBAC alone does not decide.
func TestLocal_probeFails(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(c *localCluster,
			spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus
		fallback string
	}{
		"AlwaysAllow": {
			func(*localCluster, authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
			}, "the cluster allows an unknown user what its RBAC objects do not allow",
		},
		"a webhook that allows first": {
			func(c *localCluster,
				spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
				s := c.decides(spec)
				s.Reason = "webhook"
				return s
			}, "another authorizer decides before RBAC",
		},
		"a webhook that denies first": {
			func(*localCluster, authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
				return authorizationv1.SubjectAccessReviewStatus{Denied: true}
			}, "the cluster denies what its RBAC objects allow",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newLocalCluster(t)
				c.handle(func(_ *http.Request,
					spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, int,
					error) {
					return test.answer(c, spec), 0, nil
				})
				for range 20 {
					_, err := c.local.Authorize(t.Context(), alice, getPod)
					expect.NoError(t, err)
					time.Sleep(time.Second)
				}
				s := c.local.Stats()
				expect.Equal(t, s.Fallback, test.fallback)
				expect.Equal(t, []any{s.Local, s.Proven}, []any{uint64(0), false})
			})
		})
	}
}

// TestLocal_disagreement adds an authorizer that denies before RBAC.
func TestLocal_disagreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.veto = func(resource string) bool { return resource == "secrets" }
		c.prove(t)
		c.ask(t, alice, secret("get"), true)
		time.Sleep(4500 * time.Millisecond)
		expect.Equal(t, c.local.Stats().Fallback, "")
		time.Sleep(time.Second)
		c.ask(t, alice, secret("get"), false)
		s := c.local.Stats()
		expect.Equal(t, s.Fallback, "the cluster denies what its RBAC objects allow")
		expect.Equal(t, []uint64{s.Disagreements, s.Transient}, []uint64{1, 0})
		c.ask(t, alice, getPod, true)
		expect.Equal(t, c.local.Stats().Local, 1)
		if log := c.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "cluster=stub") ||
			!strings.Contains(log, "resource=secrets") {
			t.Errorf("log: %s", log)
		}
	})
}

// TestLocal_transientDisagreement checks that a copy that lags is not a reason to fall back.
func TestLocal_transientDisagreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		c.actual.DeleteClusterRoleBinding("viewers")
		c.ask(t, alice, secret("get"), true) // the copy lags
		time.Sleep(3 * time.Second)
		c.policy.DeleteClusterRoleBinding("viewers")
		c.ask(t, alice, secret("get"), false)
		time.Sleep(10 * time.Second)
		s := c.local.Stats()
		expect.Equal(t, []any{s.Disagreements, s.Transient, s.Fallback}, []any{uint64(1), uint64(1), ""})
	})
}

// TestLocal_staleCopy checks that a copy that does not follow the cluster does not count as a
// disagreement.
func TestLocal_staleCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		c.actual.DeleteClusterRoleBinding("viewers")
		c.ask(t, alice, secret("get"), true)
		synctest.Wait()
		c.fresh.Store(false)
		c.ask(t, alice, secret("get"), false)
		time.Sleep(time.Minute)
		s := c.local.Stats()
		expect.Equal(t, []any{s.Disagreements, s.Transient, s.Fallback}, []any{uint64(1), uint64(0), ""})
	})
}

// TestLocal_revocation checks that a lost right is not found in the reviewer's cache, where a
// comparison or a review during the change has left it.
func TestLocal_revocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		time.Sleep(2 * time.Second)
		c.ask(t, alice, secret("get"), true)
		synctest.Wait() // the comparison has cached that the cluster allows it
		c.policy.DeleteClusterRoleBinding("viewers")
		time.Sleep(time.Millisecond)
		c.ask(t, alice, secret("get"), true) // the cluster's own authorizer lags, and allows it
		c.actual.DeleteClusterRoleBinding("viewers")
		time.Sleep(time.Millisecond)
		c.ask(t, alice, secret("get"), false)
		time.Sleep(1500 * time.Millisecond)
		c.ask(t, alice, secret("get"), false)
	})
}

// TestLocal_beyondRBAC checks that what another authorizer allows is reviewed once in 10 s.
func TestLocal_beyondRBAC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		time.Sleep(2 * time.Second)
		c.actual.SetClusterRoleBinding(bound("webhook", "view", rbacv1.Subject{Kind: "User", Name: "bob"}))
		calls := c.calls()
		for range 10 {
			c.ask(t, &authenticationv1.UserInfo{Username: "bob"}, secret("get"), true)
		}
		expect.Equal(t, c.calls()-calls, 1)
		s := c.local.Stats()
		expect.Equal(t, []any{s.Beyond, s.Disagreements, s.Fallback}, []any{uint64(10), uint64(0), ""})
	})
}

// TestLocal_clusterUnreachable checks that the copy goes on to decide, that other requests get
// 503, and that comparisons do not burden the cluster.
func TestLocal_clusterUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		c.handle(func(*http.Request,
			authorizationv1.SubjectAccessReviewSpec) (s authorizationv1.SubjectAccessReviewStatus, code int, _ error) {
			return s, code, syscall.ECONNREFUSED
		})
		calls := c.calls()
		for range 1000 {
			c.ask(t, alice, secret("get"), true)
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		if n := c.calls() - calls; n < 2 || n > 3 {
			t.Errorf("%d reviews in 10 s", n)
		}
		_, err := c.local.Authorize(t.Context(), alice, secret("watch"))
		expect.Equal(t, statusOf(t, err).Code, 503)
		expect.Equal(t, c.local.Stats().Fallback, "")
	})
}

// TestLocal_comparisonsAreBounded lets the cluster hang while many users make their first
// request.
func TestLocal_comparisonsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLocalCluster(t)
		c.prove(t)
		c.policy.SetClusterRoleBinding(bound("all", "view", rbacv1.Subject{Kind: "Group", Name: "dev"}))
		c.handle(func(r *http.Request,
			_ authorizationv1.SubjectAccessReviewSpec) (s authorizationv1.SubjectAccessReviewStatus, _ int, _ error) {
			<-r.Context().Done()
			return s, 0, r.Context().Err()
		})
		for i := range 100 {
			c.ask(t, named(i), getPod, true)
		}
		synctest.Wait()
		expect.Equal(t, []any{c.running, c.local.Stats().Skipped}, []any{comparisons, uint64(100 - comparisons)})
		start := time.Now()
		c.local.Close()
		expect.Equal(t, time.Since(start), 0)
		_, err := c.local.Fresh(t.Context(), alice, getPod)
		expect.Equal(t, statusOf(t, err).Code, 503) // the cluster decides now, and hangs
	})
}

func TestSampler_isBounded(t *testing.T) {
	s := newSampler()
	now := time.Now()
	for i := range uint64(10 * generation) {
		if !s.selects(i, now) {
			t.Fatalf("kind %d is not compared", i)
		}
	}
	if n := len(s.recent) + len(s.older); n > 2*generation {
		t.Errorf("%d kinds", n)
	}
	last := uint64(10*generation - 1)
	now = now.Add(time.Hour)
	compared := 0
	for range 10_000 {
		if s.selects(last, now) {
			compared++
		}
		now = now.Add(sampleGap)
	}
	if compared < 50 || compared > 200 {
		t.Errorf("%d of 10,000 are compared", compared)
	}
	s.forget(last)
	if !s.selects(last, now) {
		t.Error("a forgotten kind is not compared")
	}
}
