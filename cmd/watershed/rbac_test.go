// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/cmd/watershed/internal/group"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

func TestRBAC_saysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--service-account NAMESPACE/NAME or with --user"},
		{[]string{"--user", "u", "--service-account", "a/b"}, "--service-account NAMESPACE/NAME or with --user"},
		{[]string{"--service-account", "a"}, "NAMESPACE/NAME"},
		{[]string{"--service-account", "a/b/c"}, "NAMESPACE/NAME"},
		{[]string{"--user", "u"}, "--context or --kubeconfig"},
		{[]string{"--user", "u", "--resources", "pods,*.apps"}, `pattern "*.apps"`},
		{[]string{"--user", "u", "--resources", "pods/x"}, `pattern "pods/x"`},
		{[]string{"--user", "u", "--resources", "pods", "-n", "x", "--local-rbac"}, "--local-rbac has no effect"},
		{[]string{"--user", "u", "--kubeconfig", "/none/such"}, "/none/such"},
	} {
		if out, err := command(t.Context(), append([]string{"rbac"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%v: %v and %q, want something about %s", c.args, err, out, c.want)
		}
	}
}

// Without a cluster, the rights are those that the patterns name.
func TestRBAC_byName(t *testing.T) {
	for _, c := range []struct {
		args      []string
		has, lack []string
	}{
		{
			[]string{"--resources", "pods,configmaps,namespaces", "--service-account", "ws/reader"},
			[]string{
				"kind: ServiceAccount\n  name: reader\n  namespace: ws\n", "- configmaps\n  - namespaces\n  - pods\n",
				"- customresourcedefinitions\n  verbs:\n  - list\n",
			},
			[]string{
				"kind: Role\n", "RoleBinding\nmetadata:\n  name: watershed:authentication-reader", "resourceNames",
				"*\n  verbs", "secrets",
			},
		},
		{
			[]string{"--resources", "pods,secrets", "--user", "u", "--local-rbac", "--name", "x"},
			[]string{
				"- pods\n  - secrets\n", "- clusterrolebindings\n  - clusterroles\n  - rolebindings\n  - roles\n",
				"name: x:authentication-reader", "- kube-system\n",
			},
			nil,
		},
		{
			[]string{"--resources", "pods,configmaps,namespaces", "--user", "u", "--namespace", "shop"},
			[]string{
				"kind: Role\nmetadata:\n  name: watershed\n  namespace: shop\n",
				"name: watershed:authentication-reader", "- kube-system\n",
			},
			[]string{"customresourcedefinitions"},
		},
		{
			[]string{"--resources", "pods,services", "--except", "services", "--user", "u"},
			[]string{"- pods\n"},
			[]string{"- services\n"},
		},
	} {
		out, err := command(t.Context(), append([]string{"rbac"}, c.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.has {
			if !strings.Contains(out, text) {
				t.Errorf("%v: %q is not in\n%s", c.args, text, out)
			}
		}
		for _, text := range c.lack {
			if strings.Contains(out, text) {
				t.Errorf("%v: %q is in\n%s", c.args, text, out)
			}
		}
	}
}

// definition is a type of the test cluster.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wells.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: wells, singular: well, kind: Well}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// TestRBAC applies the printed rights to users of a real cluster that have no others: not
// even those that all users usually have.
func TestRBAC(t *testing.T) {
	k := kubetest.Start(t, &kubetest.Options{
		Name:  "real",
		Users: []kubetest.User{{Name: "whole"}, {Name: "narrow"}, {Name: "shop"}, {Name: "grouped"}},
	})
	admin := kubernetes.NewForConfigOrDie(k.Config())
	for _, name := range []string{"system:discovery", "system:public-info-viewer", "system:basic-user"} {
		if err := admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := k.KubectlInput(t.Context(), definition, "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := k.Kubectl(t.Context(), "wait", "--for=condition=Established", "crd/wells.example.com",
		"--timeout=30s"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := k.Kubectl(t.Context(), "create", "namespace", "shop"); err != nil {
		t.Fatal(out, err)
	}
	t.Run("whole", func(t *testing.T) { checkWhole(t, k) })
	t.Run("namespace", func(t *testing.T) { checkNamespace(t, k) })
	t.Run("replica group", func(t *testing.T) { checkGroupRights(t, k) })
	t.Run("minimal", func(t *testing.T) { checkMinimal(t, k, admin) })
}

// grant applies the rights that the command prints for a user of the same name.
func grant(t *testing.T, k *kubetest.Cluster, user string, args ...string) {
	t.Helper()
	text, err := command(t.Context(), append([]string{
		"rbac", "--kubeconfig", k.Kubeconfig(), "--user", user, "--name", user,
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := k.KubectlInput(t.Context(), text, "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
}

// synced runs a fleet with the credentials of a user until all resources have synced, and
// returns the member.
func synced(t *testing.T, cfg *rest.Config, opts *fleet.Options) *fleet.Member {
	t.Helper()
	clusters, err := directory.NewStatic(fleet.Entry{Name: "real", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	opts.Logger = quiet
	f, err := fleet.New(clusters, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	wait, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	err = f.WaitForSync(wait)
	m, ok := f.Member("real")
	if !ok {
		t.Fatal("the cluster is not in the fleet", err)
	}
	if is := m.Status(); err != nil || is.State != fleet.Live || len(is.Failing) > 0 || is.Err != nil {
		t.Fatalf("the member is %s, failing %v: %v", is, is.Failing, err)
	}
	if m.Identity().UID == "" {
		t.Error("the identity of the cluster cannot be read")
	}
	return m
}

// checkWhole mirrors the cluster with the default flags. The rights are those for the
// resources that are mirrored, and for no others.
func checkWhole(t *testing.T, k *kubetest.Cluster) {
	grant(t, k, "whole")
	m := synced(t, k.UserConfig("whole"), &fleet.Options{Resources: settings.DefaultResources()})
	admin := kubernetes.NewForConfigOrDie(k.Config())
	role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), "whole", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	granted, mirrored := map[string]bool{}, map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			granted[strings.TrimSuffix(resource+"."+rule.APIGroups[0], ".")] = true
		}
	}
	for _, r := range m.Resources() {
		mirrored[r.Resource.GroupResource().String()] = true
	}
	if !maps.Equal(granted, mirrored) || !mirrored["wells.example.com"] || len(mirrored) < 40 {
		t.Errorf("granted %v\nmirrored %v", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(mirrored)))
	}
	u := newClient(t, k.UserConfig("whole"))
	for _, path := range []string{
		"GET /api/v1/secrets", "GET /api/v1/namespaces/default/secrets/x",
		"GET /api/v1/secrets?watch=1&timeoutSeconds=1", "GET /api/v1/namespaces/default/pods/x/log",
		"GET /api/v1/namespaces/default/pods/x/exec", "POST /api/v1/namespaces", "GET /metrics",
		"DELETE /api/v1/namespaces/shop",
	} {
		if code := u.code(path); code != http.StatusForbidden {
			t.Errorf("%s is answered with %d, want 403", path, code)
		}
	}
	for path := range delegated {
		if code := u.code(path); code == http.StatusForbidden {
			t.Errorf("%s is refused", path)
		}
	}
}

// checkNamespace mirrors one namespace.
func checkNamespace(t *testing.T, k *kubetest.Cluster) {
	grant(t, k, "shop", "--namespace", "shop")
	synced(t, k.UserConfig("shop"), &fleet.Options{
		Resources: settings.DefaultResources(),
		Scope:     fleet.Scope{Namespace: "shop"},
	})
	u := newClient(t, k.UserConfig("shop"))
	for path, allowed := range map[string]bool{
		"GET /api/v1/namespaces/shop/configmaps": true, "GET /api/v1/namespaces/default/configmaps": false,
		"GET /api/v1/configmaps":              false,
		"GET /api/v1/namespaces/shop/secrets": false, "GET /api/v1/nodes": false, authorityRead: true,
	} {
		if code := u.code(path); (code != http.StatusForbidden) != allowed {
			t.Errorf("%s is answered with %d, allowed is %v", path, code, allowed)
		}
	}
}

// checkGroupRights holds and releases a Lease, with the rights for one namespace.
func checkGroupRights(t *testing.T, k *kubetest.Cluster) {
	grant(t, k, "grouped", "--resources", "pods", "--group-namespace", "shop")
	cluster, err := kube.FromConfig(k.UserConfig("grouped"), nil)
	expect.NoError(t, err)
	defer cluster.CloseIdleConnections()
	m := group.New(group.Options{Group: "pair", Namespace: "shop", Cluster: func() *kube.Cluster { return cluster },
		Logger: quiet})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	expect.Eventually(t, time.Minute, func() error {
		if s := m.Status(); !s.Renewed {
			return fmt.Errorf("the Lease is not renewed: %w", s.Err)
		}
		return nil
	})
	end()
	expect.NoError(t, <-ended)
	leases := kubernetes.NewForConfigOrDie(k.Config()).CoordinationV1().Leases("shop")
	list, err := leases.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	if len(list.Items) != 1 || list.Items[0].Spec.HolderIdentity != nil {
		t.Errorf("the Leases are %+v", list.Items)
	}
	u := newClient(t, k.UserConfig("grouped"))
	for path, allowed := range map[string]bool{
		"GET /apis/coordination.k8s.io/v1/namespaces/shop/leases":         true,
		"GET /apis/coordination.k8s.io/v1/namespaces/shop/leases?watch=1": false,
		"GET /apis/coordination.k8s.io/v1/namespaces/default/leases":      false,
		"GET /apis/coordination.k8s.io/v1/leases":                         false,
		"DELETE /apis/coordination.k8s.io/v1/namespaces/shop/leases":      false,
		"DELETE /apis/coordination.k8s.io/v1/namespaces/shop/leases/x":    true,
		"GET /api/v1/namespaces/shop/secrets":                             false,
	} {
		if code := u.code(path); (code != http.StatusForbidden) != allowed {
			t.Errorf("%s is answered with %d, allowed is %v", path, code, allowed)
		}
	}
}

// authorityRead is the request for the certificate authority of clients.
const authorityRead = "GET /api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// delegated are the requests with which callers are authenticated and authorized, and their
// bodies.
var delegated = map[string]string{
	"POST /apis/authentication.k8s.io/v1/tokenreviews":        `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"x"}}`,
	"POST /apis/authorization.k8s.io/v1/subjectaccessreviews": `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"user":"u","nonResourceAttributes":{"path":"/","verb":"get"}}}`,
	authorityRead: "",
}

// needed are all requests that a replica of pods and deployments makes.
func needed() []string {
	all := slices.Collect(maps.Keys(delegated))
	return append(all, "GET /api", "GET /apis", "GET /api/v1", "GET /apis/apps/v1", "GET /openapi/v2",
		"GET /openapi/v3", "GET /openapi/v3/version", "GET /version",
		"GET /api/v1/namespaces/kube-system", "GET /apis/apiregistration.k8s.io/v1/apiservices",
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		"GET /api/v1/pods", "GET /api/v1/namespaces/x/pods/x", "GET /api/v1/pods?watch=1&timeoutSeconds=1",
		"GET /apis/apps/v1/deployments", "GET /apis/apps/v1/namespaces/x/deployments/x",
		"GET /apis/apps/v1/deployments?watch=1&timeoutSeconds=1")
}

// checkMinimal removes each rule and each binding in turn. Each time, something that a
// replica needs is refused.
func checkMinimal(t *testing.T, k *kubetest.Cluster, admin kubernetes.Interface) {
	grant(t, k, "narrow", "--resources", "pods,deployments.apps")
	synced(t, k.UserConfig("narrow"), &fleet.Options{Resources: []string{"pods", "deployments.apps"}})
	u := newClient(t, k.UserConfig("narrow"))
	// until waits until something is refused, or nothing, and returns what is.
	until := func(what string, refused bool) (last []string) {
		t.Helper()
		expect.Eventually(t, time.Minute, func() error {
			last = nil
			for _, path := range needed() {
				if u.code(path) == http.StatusForbidden {
					last = append(last, path)
				}
			}
			if (len(last) > 0) != refused {
				return fmt.Errorf("%s: refused are %q", what, last)
			}
			return nil
		})
		return last
	}
	until("all rights", false)
	roles := admin.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "narrow", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules := role.Rules
	change := func(now []rbacv1.PolicyRule) {
		role.Rules = now
		if role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range rules {
		change(slices.Delete(slices.Clone(rules), i, i+1))
		t.Logf("without %v: refused are %q", rules[i], until(fmt.Sprint("without ", rules[i]), true))
		change(rules)
		until("all rights again", false)
	}
	for _, binding := range []string{
		"clusterrolebinding/narrow:auth-delegator", "-n=kube-system rolebinding/narrow:authentication-reader",
	} {
		if out, err := k.Kubectl(t.Context(), append([]string{"delete"}, strings.Fields(binding)...)...); err != nil {
			t.Fatal(out, err)
		}
		t.Logf("without %s: refused are %q", binding, until("without "+binding, true))
		grant(t, k, "narrow", "--resources", "pods,deployments.apps")
		until("all rights again", false)
	}
}

// rawClient sends requests with the credentials of a user.
type rawClient struct {
	t    *testing.T
	http *http.Client
	host string
}

func newClient(t *testing.T, cfg *rest.Config) *rawClient {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &rawClient{t, client, cfg.Host}
}

// code sends a request, which is a method and a path, and returns the code of the response.
func (c *rawClient) code(request string) int {
	c.t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.host+path, strings.NewReader(delegated[request]))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	if !strings.Contains(path, "watch=1") {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return resp.StatusCode
}
