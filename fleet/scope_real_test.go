// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/wire"
)

// serviceAccount creates an account that may read everything in one namespace and nothing
// elsewhere, and returns its credentials.
func serviceAccount(t *testing.T, c *kubetest.Cluster, client kubernetes.Interface, namespace string) *rest.Config {
	t.Helper()
	ctx := t.Context()
	accounts := client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Grant(ctx, "system:serviceaccount:"+namespace+":reader", namespace, rbacv1.PolicyRule{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"},
	}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(ctx, "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(c.Config())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// TestScope_serviceAccount mirrors a namespace of a real cluster with an account that is
// bound to it, beside the whole cluster and a part of it by label.
func TestScope_serviceAccount(t *testing.T) {
	c := kubetest.Start(t, nil)
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "team-a"
	for _, name := range []string{namespace, "team-b"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(namespace, name, app string) {
		t.Helper()
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}}}
		if _, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(namespace, "one", "shop")
	put("team-b", "one", "shop")
	put("team-b", "two", "bank")
	var system *corev1.Namespace
	expect.Eventually(t, 30*time.Second, func() error {
		if system, err = client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
			return err
		}
		return nil
	})
	d, err := directory.NewStatic(
		fleet.Entry{
			Name: "team", Config: serviceAccount(t, c, client, namespace), Scope: &fleet.Scope{Namespace: namespace},
		},
		fleet.Entry{Name: "shop", Config: c.Config(), Scope: &fleet.Scope{LabelSelector: "app=shop"}},
		fleet.Entry{Name: "whole", Config: c.Config()},
	)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, d, &fleet.Options{History: 1 << 20, Logger: quiet})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Members() {
		s := m.Status()
		if s.State != fleet.Live {
			t.Errorf("%s is %s: %v", m.Name(), s.State, s.Err)
		}
		want := string(system.UID)
		if m.Name() == "team" {
			want = "" // the account may not read kube-system
		}
		if s.Identity.UID != want {
			t.Errorf("the UID of %s is %q, not %q", m.Name(), s.Identity.UID, want)
		}
	}
	configMaps := fleet.OfResource[*wire.Object](f, schema.GroupResource{Resource: "configmaps"})
	names := func(cluster string) []string {
		all := []string{}
		for key := range configMaps.In(cluster).All() {
			if key.Object != namespace+"/kube-root-ca.crt" { // created by a controller
				all = append(all, key.Object)
			}
		}
		return all
	}
	want := func(cluster string, keys ...string) {
		t.Helper()
		expect.Eventually(t, 10*time.Second, func() error {
			if got := names(cluster); !slices.Equal(got, keys) {
				return fmt.Errorf("%s has %v, not %v", cluster, got, keys)
			}
			return nil
		})
	}
	want("team", "team-a/one")
	want("shop", "team-a/one", "team-b/one")
	put(namespace, "two", "bank")
	put("team-b", "three", "shop")
	want("team", "team-a/one", "team-a/two")
	want("shop", "team-a/one", "team-b/one", "team-b/three")
	team, _ := f.Member("team")
	if team.Excludes(corev1.SchemeGroupVersion.WithResource("configmaps")) ||
		!team.Excludes(corev1.SchemeGroupVersion.WithResource("nodes")) {
		t.Error("the scope excludes config maps, or does not exclude nodes")
	}
	expect.Eventually(t, 10*time.Second, func() error {
		return unlike(t.Context(), f, "whole", c, schema.GroupResource{Resource: "configmaps"})
	})
}
