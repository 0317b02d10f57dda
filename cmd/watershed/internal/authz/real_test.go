// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/rbac"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica"
)

// oddName has the characters that a 403 escapes.
const oddName = `odd<&>"name"`

// realCase is a request and its attributes.
type realCase struct {
	method, path string
	a            replica.Attributes
}

func resource(verb, group, version, resource, sub, namespace, name string) replica.Attributes {
	return replica.Attributes{
		Verb:        verb,
		IsResource:  true,
		Group:       group,
		Version:     version,
		Resource:    resource,
		Subresource: sub,
		Namespace:   namespace,
		Name:        name,
	}
}

var realCases = []realCase{
	{"GET", "/api/v1/pods", resource("list", "", "v1", "pods", "", "", "")},
	{"GET", "/api/v1/namespaces/a/pods", resource("list", "", "v1", "pods", "", "a", "")},
	{"GET", "/api/v1/namespaces/b/pods", resource("list", "", "v1", "pods", "", "b", "")},
	{"GET", "/api/v1/namespaces/a/pods/x", resource("get", "", "v1", "pods", "", "a", "x")},
	{"GET", "/api/v1/namespaces/a/pods/x/status", resource("get", "", "v1", "pods", "status", "a", "x")},
	{"GET", "/api/v1/namespaces/a", resource("get", "", "v1", "namespaces", "", "a", "a")},
	{"GET", "/api/v1/nodes/n", resource("get", "", "v1", "nodes", "", "", "n")},
	{"GET", "/api/v1/namespaces/a/secrets/mine", resource("get", "", "v1", "secrets", "", "a", "mine")},
	{"GET", "/api/v1/namespaces/a/secrets/other", resource("get", "", "v1", "secrets", "", "a", "other")},
	{
		"GET", "/apis/apps/v1/namespaces/a/deployments/x/scale",
		resource("get", "apps", "v1", "deployments", "scale", "a", "x"),
	},
	{"GET", "/apis/apps/v1/deployments", resource("list", "apps", "v1", "deployments", "", "", "")},
	{
		"DELETE", "/apis/apps/v1/namespaces/a/deployments",
		resource("deletecollection", "apps", "v1", "deployments", "", "a", ""),
	},
	{"GET", "/apis/example.org/v1/namespaces/a/things", resource("list", "example.org", "v1", "things", "", "a", "")},
	{"GET", "/api/v1/namespaces/a/pods/x%3Cy%3E", resource("get", "", "v1", "pods", "", "a", "x<y>")},
	{"GET", "/metrics", replica.Attributes{Verb: "get", Path: "/metrics"}},
	{"GET", "/version", replica.Attributes{Verb: "get", Path: "/version"}},
	{"GET", "/logs/%3Cscript%3E", replica.Attributes{Verb: "get", Path: "/logs/<script>"}},
	{"POST", "/metrics", replica.Attributes{Verb: "post", Path: "/metrics"}},
	{"GET", "/api/v1/namespaces/a/pods?fieldSelector=spec.nodeName%3Dn&labelSelector=app+in+(a,b)",
		func() replica.Attributes {
			a := resource("list", "", "v1", "pods", "", "a", "")
			a.FieldSelector, a.LabelSelector = "spec.nodeName=n", "app in (a,b)"
			return a
		}()},
	{"GET", "/api/v1/namespaces/b/pods?fieldSelector=%3Dx&labelSelector=size%3E3", func() replica.Attributes {
		a := resource("list", "", "v1", "pods", "", "b", "")
		a.FieldSelector, a.LabelSelector = "=x", "size>3"
		return a
	}()},
}

// TestReal compares decisions and 403 responses with those of a real API server.
func TestReal(t *testing.T) {
	names := []string{"alice", "bob", "lost", oddName, "root", "nobody"}
	k := kubetest.Start(t, &kubetest.Options{Users: []kubetest.User{
		{Name: "alice", Groups: []string{"dev"}},
		{Name: "bob"},
		{Name: "lost"},
		{Name: oddName, Groups: []string{"dev", "other"}},
		{Name: "root", Groups: []string{"system:masters"}},
		{Name: "nobody"},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	admin, err := kubernetes.NewForConfig(k.Config())
	expect.NoError(t, err)
	createAccess(ctx, t, admin)

	connect := func(config *rest.Config) *kube.Cluster {
		c, err := kube.FromConfig(config, &kube.Options{Name: "real"})
		expect.NoError(t, err)
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	reviewer := NewReviewer(connect(k.Config()), nil)
	defer reviewer.Close()
	policy := copyPolicy(ctx, t, admin)
	local := NewLocal(policy, reviewer, &LocalOptions{Cluster: "real"})
	defer local.Close()

	users := map[string]*authenticationv1.UserInfo{}
	forbidden := 0
	for _, name := range names {
		config := k.UserConfig(name)
		users[name] = whoAmI(ctx, t, config)
		self := NewSelfReviewer(connect(config), nil)
		defer self.Close()
		for _, c := range realCases {
			want := request(ctx, t, config, c)
			for kind, authorize := range map[string]func(context.Context, *authenticationv1.UserInfo,
				replica.Attributes) (Decision, error){
				"review": reviewer.Authorize, "self review": self.Authorize, "local": local.Authorize,
			} {
				d, err := authorize(ctx, users[name], c.a)
				expect.NoError(t, err)
				if denied := want.Code == http.StatusForbidden; d.Allowed == denied {
					t.Errorf("%s: %s %s as %s: allowed %v, the server says %d %s", kind, c.method, c.path, name,
						d.Allowed, want.Code, want.Message)
				} else if denied {
					forbidden++
					expect.Equal(t, normalized(statusOf(t, Forbidden(users[name], c.a, d.Reason))), normalized(want))
				}
			}
		}
	}
	if forbidden < 100 {
		t.Errorf("only %d denials were compared", forbidden)
	}
	testMissingRight(ctx, t, connect(k.UserConfig("nobody")))
	testProof(ctx, t, local, users["alice"])
	testPolicy(ctx, t, policy, reviewer)
}

// createAccess creates the rights of the users.
func createAccess(ctx context.Context, t *testing.T, client kubernetes.Interface) {
	t.Helper()
	api := client.RbacV1()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{})
	expect.NoError(t, err)
	for name, rule := range map[string]rbacv1.PolicyRule{
		"test-pods": {
			Verbs:     []string{"get", "list"},
			APIGroups: []string{""},
			Resources: []string{"pods", "*/status"},
		},
		"test-secrets": {
			Verbs:         []string{"get"},
			APIGroups:     []string{""},
			Resources:     []string{"secrets"},
			ResourceNames: []string{"mine"},
		},
		"test-metrics": {Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/logs/*"}},
	} {
		_, err := api.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{rule},
		}, metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	for _, b := range []struct {
		namespace, kind, role string
		subject               rbacv1.Subject
	}{
		{"a", "ClusterRole", "test-pods", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "dev"}},
		{"a", "ClusterRole", "test-secrets", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: oddName}},
		{"", "ClusterRole", "test-metrics", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "bob"}},
		{"a", "Role", "missing-role", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "lost"}},
		{"", "ClusterRole", "missing-one", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "lost"}},
		{"", "ClusterRole", "missing-two", rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "lost"}},
	} {
		meta := metav1.ObjectMeta{Name: b.role, Namespace: b.namespace}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: b.kind, Name: b.role}
		var err error
		if b.namespace == "" {
			_, err = api.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{b.subject},
			}, metav1.CreateOptions{})
		} else {
			_, err = api.RoleBindings(b.namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{b.subject},
			}, metav1.CreateOptions{})
		}
		expect.NoError(t, err)
	}
	// The server's authorizer follows a moment later.
	for _, spec := range []authorizationv1.SubjectAccessReviewSpec{
		{User: "u", Groups: []string{"dev"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Namespace: "a", Resource: "pods",
		}},
		{User: oddName, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Namespace: "a", Resource: "secrets", Name: "mine",
		}},
		{User: "bob", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}},
		{User: "lost", ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Namespace: "a", Resource: "pods",
		}},
	} {
		expect.Eventually(t, time.Minute, func() error {
			review := &authorizationv1.SubjectAccessReview{Spec: spec}
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			ok := review.Status.Allowed
			if spec.User == "lost" { // its roles do not exist, which the reason says
				reason := review.Status.Reason + review.Status.EvaluationError
				ok = strings.Contains(reason, "missing-role") && strings.Contains(reason, "missing-one") &&
					strings.Contains(reason, "missing-two")
			}
			if !ok {
				return fmt.Errorf("the access of %s: %+v", spec.User, review.Status)
			}
			return nil
		})
	}
}

// copyPolicy reads the RBAC objects of the cluster.
func copyPolicy(ctx context.Context, t *testing.T, client kubernetes.Interface) *rbac.Policy {
	t.Helper()
	p := rbac.New()
	api := client.RbacV1()
	clusterRoles, err := api.ClusterRoles().List(ctx, metav1.ListOptions{})
	expect.NoError(t, err)
	for i := range clusterRoles.Items {
		p.SetClusterRole(&clusterRoles.Items[i])
	}
	roles, err := api.Roles("").List(ctx, metav1.ListOptions{})
	expect.NoError(t, err)
	for i := range roles.Items {
		p.SetRole(&roles.Items[i])
	}
	clusterBindings, err := api.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	expect.NoError(t, err)
	for i := range clusterBindings.Items {
		p.SetClusterRoleBinding(&clusterBindings.Items[i])
	}
	bindings, err := api.RoleBindings("").List(ctx, metav1.ListOptions{})
	expect.NoError(t, err)
	for i := range bindings.Items {
		p.SetRoleBinding(&bindings.Items[i])
	}
	return p
}

// whoAmI returns the user that the server sees.
func whoAmI(ctx context.Context, t *testing.T, config *rest.Config) *authenticationv1.UserInfo {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	expect.NoError(t, err)
	return &review.Status.UserInfo
}

// request makes a request and returns its code and, if it failed, its status.
func request(ctx context.Context, t *testing.T, config *rest.Config, c realCase) metav1.Status {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	expect.NoError(t, err)
	r, err := http.NewRequestWithContext(ctx, c.method, config.Host+c.path, nil)
	expect.NoError(t, err)
	resp, err := client.Do(r)
	expect.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	expect.NoError(t, err)
	if resp.StatusCode != http.StatusForbidden {
		return metav1.Status{Code: int32(resp.StatusCode), Message: string(body[:min(len(body), 200)])}
	}
	var status metav1.Status
	expect.NoError(t, json.Unmarshal(body, &status))
	return status
}

// normalized returns a status with the reasons in its message sorted, because the server has
// them in random order.
func normalized(s metav1.Status) metav1.Status {
	s.TypeMeta = metav1.TypeMeta{}
	if before, list, ok := strings.Cut(s.Message, "RBAC: ["); ok {
		reasons := strings.Split(strings.TrimSuffix(list, "]"), ", ")
		slices.Sort(reasons)
		s.Message = before + "RBAC: [" + strings.Join(reasons, ", ") + "]"
	}
	return s
}

// testMissingRight uses credentials that may not create reviews.
func testMissingRight(ctx context.Context, t *testing.T, c *kube.Cluster) {
	t.Helper()
	r := NewReviewer(c, nil)
	defer r.Close()
	_, err := r.Authorize(ctx, alice, getPod)
	if err == nil {
		t.Fatal("a review without the right to create it")
	}
	status := statusOf(t, err)
	expect.Equal(t, []any{status.Code, status.Message}, []any{int32(503), noRight})
}

// testProof checks that the probe succeeds with a real API server.
func testProof(ctx context.Context, t *testing.T, l *Local, user *authenticationv1.UserInfo) {
	t.Helper()
	expect.Eventually(t, 10*time.Second, func() error {
		_, err := l.Authorize(ctx, user, resource("get", "", "v1", "pods", "", "a", "x"))
		if s := l.Stats(); err == nil && (!s.Proven || s.Local == 0) {
			err = errors.New("not proven yet")
		}
		return err
	})
	if s := l.Stats(); s.Fallback != "" || s.Disagreements > 0 {
		t.Errorf("%+v", s)
	}
}

// testPolicy compares random decisions about the server's own roles.
func testPolicy(ctx context.Context, t *testing.T, p *rbac.Policy, r *Reviewer) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	allowed := 0
	for i := range 300 {
		user := &authenticationv1.UserInfo{
			Username: one("system:kube-scheduler", "system:kube-controller-manager", "system:kube-proxy",
				"system:serviceaccount:kube-system:endpoint-controller",
				"system:serviceaccount:kube-system:node-controller", "lost", "x"),
			Groups: []string{"system:authenticated", one("dev", "system:monitoring", "system:serviceaccounts")},
		}
		a := resource(one("get", "list", "watch", "create", "update"),
			one("", "", "apps", "coordination.k8s.io", "discovery.k8s.io"), "v1",
			one("pods", "nodes", "endpoints", "services", "leases", "endpointslices", "configmaps"),
			one("", "", "", "status", "binding"), one("", "kube-system", "a"), one("", "kube-scheduler", "x"))
		if random.IntN(5) == 0 {
			a = replica.Attributes{
				Verb: one("get", "post"), Path: one("/metrics", "/version", "/healthz", "/api/x", "/apis", "/logs/x"),
			}
		}
		got, reason := p.Authorize(user, a)
		want, err := r.Authorize(ctx, user, a)
		expect.NoError(t, err)
		if got != want.Allowed {
			t.Errorf("seed %d, request %d: %s may %+v: %v (%s), the server: %v (%s)", seed, i, user.Username, a, got,
				reason, want.Allowed, want.Reason)
		}
		if got {
			allowed++
		}
	}
	if allowed < 30 {
		t.Errorf("seed %d: only %d of 300 requests are allowed", seed, allowed)
	}
	t.Logf("seed %d: %d of 300 allowed; %+v", seed, allowed, r.Stats())
}
