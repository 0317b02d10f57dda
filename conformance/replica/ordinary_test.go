// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/conformance/program"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestOrdinaryUser runs the replica with the credentials of a user that may not review the
// tokens and the access of others, as most people may not. The same user reads through the
// replica what the cluster lets the user read, and writes what it lets the user write. Others
// are refused.
func TestOrdinaryUser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Kubernetes: not in short mode")
	}
	c := kubetest.Start(t, &kubetest.Options{
		Name: "one",
		Users: []kubetest.User{
			{Name: "dev", Groups: []string{"devs"}},
			{Name: "other", Groups: []string{"system:masters"}},
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	expect.NoError(t, c.Grant(ctx, "dev", "", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     []string{"get", "list", "watch"},
	}))
	expect.NoError(t, c.Grant(ctx, "dev", "default", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"configmaps"},
		Verbs:     []string{"create"},
	}))
	dev := c.UserConfig("dev")
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(
		*kubeconfigFor(dev.Host, dev.CAData, "", map[string]*clientcmdapi.AuthInfo{"one": {Token: dev.BearerToken}}),
		kubeconfig,
	))
	process, err := program.Start(ctx, dir, "--kubeconfig", kubeconfig, "--context", "one", "--pass-through",
		"--resources", "configmaps")
	expect.NoError(t, err)
	t.Cleanup(func() {
		process.Stop()
		if t.Failed() {
			t.Log(process.Tail())
		}
	})
	at := func(user string) *rest.Config {
		config := process.Config()
		config.Host += "/clusters/one"
		config.BearerToken = c.UserConfig(user).BearerToken
		return config
	}
	client, err := kubernetes.NewForConfig(at("dev"))
	expect.NoError(t, err)
	maps := client.CoreV1().ConfigMaps("default")
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	var list corev1.ConfigMapList
	const path = "/api/v1/namespaces/default/configmaps"
	status, copied, err := (&effectTest{read: at("dev")}).get(ctx, path, &list)
	expect.NoError(t, err)
	if status != http.StatusOK || !copied || len(list.Items) == 0 {
		t.Errorf("list: %d, from the copy %t, %d objects; want the user's own object from the copy", status, copied,
			len(list.Items))
	}
	if err := maps.Delete(ctx, "mine", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete: %v, want the refusal of the cluster", err)
	}
	if _, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list of secrets: %v, want the refusal of the cluster", err)
	}
	if status, _, err := (&effectTest{read: at("other")}).get(ctx, path, &list); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Errorf("list by another user: %d, %v; want 503, as the replica may not ask about others", status, err)
	}
}
