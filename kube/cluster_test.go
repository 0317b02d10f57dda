// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// TestCluster runs all tests that need a real API server on one, the least disruptive
// ones first.
func TestCluster(t *testing.T) {
	needStreams(t)
	authority := newAuthority(t)
	k := kubetest.Start(t, &kubetest.Options{
		Name:          "real",
		Users:         []kubetest.User{{Name: "reader"}, {Name: "stranger"}},
		APIServerArgs: []string{"--runtime-config=api/all=true", "--client-ca-file=" + authority.file},
	})
	t.Run("ways in", func(t *testing.T) { testWaysIn(t, k, authority) })
	t.Run("discovery", func(t *testing.T) { testDiscovery(t, k) })
	t.Run("every resource", func(t *testing.T) { testEveryResource(t, k) })
	t.Run("content", func(t *testing.T) { testContent(t, k) })
	t.Run("small client", func(t *testing.T) { testSmallClient(t, k) })
	t.Run("writing", func(t *testing.T) { testWriting(t, k) })
	t.Run("selection", func(t *testing.T) { testSelection(t, k) })
	t.Run("custom resource", func(t *testing.T) { testCustomResource(t, k) })
	t.Run("metadata of custom resource", func(t *testing.T) { testCustomMetadata(t, k) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, k) })
	t.Run("watch ends", func(t *testing.T) { testWatchEnds(t, k) })
	t.Run("broken connections", func(t *testing.T) { testBrokenConnections(t, k) })
	t.Run("expiry", func(t *testing.T) { testExpiry(t, k) })
	t.Run("stopped server", func(t *testing.T) { testStoppedServer(t, k) })
}

func testWaysIn(t *testing.T, k *kubetest.Cluster, authority *authority) {
	ctx := patient(t)
	list := func(c *kube.Cluster, err error) error {
		t.Helper()
		if err != nil {
			return err
		}
		t.Cleanup(c.CloseIdleConnections)
		_, err = c.List(ctx, kube.Query{Resource: namespaces}, func(*wire.Object) error { return nil })
		return err
	}

	c, err := kube.FromKubeconfig(k.Kubeconfig(), "")
	if err := list(c, err); err != nil {
		t.Errorf("current context: %v", err)
	}
	if c.Name() != "real" {
		t.Errorf("the cluster is named %q, not after its context", c.Name())
	}
	c, err = kube.FromKubeconfig(k.Kubeconfig(), "stranger@real")
	if err := list(c, err); !apierrors.IsForbidden(err) ||
		!strings.HasPrefix(err.Error(), "list namespaces in stranger@real: ") {
		t.Errorf("another user's context: %v, want Forbidden", err)
	}
	if _, err := kube.FromKubeconfig(k.Kubeconfig(), "nowhere"); err == nil ||
		!strings.Contains(err.Error(), `"nowhere"`) {
		t.Errorf("a context that does not exist: %v", err)
	}
	if _, err := kube.FromKubeconfig(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}

	if _, err := kube.FromKubeconfig("", ""); err == nil {
		t.Error("no file is one")
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.FromKubeconfig(empty, ""); err == nil {
		t.Error("there is a cluster in an empty file")
	}

	t.Setenv("KUBECONFIG", k.Kubeconfig())
	if err := list(kube.FromContext("")); err != nil {
		t.Errorf("KUBECONFIG: %v", err)
	}
	if err := list(kube.FromContext("real")); err != nil {
		t.Errorf("KUBECONFIG, by name: %v", err)
	}
	if _, err := kube.FromContext("nowhere"); err == nil {
		t.Error("KUBECONFIG: a context that does not exist is there")
	}

	if err := k.Grant(ctx, "reader", "", rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"namespaces"},
		Verbs:     []string{"list"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := list(kube.FromConfig(k.UserConfig("reader"), nil)); err != nil {
		t.Errorf("token: %v", err)
	}
	if err := list(kube.FromConfig(k.UserConfig("unknown"), nil)); !apierrors.IsUnauthorized(err) {
		t.Errorf("an unknown token: %v, want Unauthorized", err)
	}

	byCertificate := k.Config()
	byCertificate.BearerToken = ""
	if err := list(kube.FromConfig(byCertificate, nil)); !apierrors.IsForbidden(err) {
		t.Errorf("without credentials: %v, want Forbidden", err)
	}
	byCertificate.CertData, byCertificate.KeyData = authority.issue(t, "reader")
	if err := list(kube.FromConfig(byCertificate, nil)); err != nil {
		t.Errorf("client certificate: %v", err)
	}
	byCommand := k.Config()
	byCommand.BearerToken = ""
	byCommand.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1",
		Command:    "sh",
		Args: []string{
			"-c", `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` +
				k.UserConfig("reader").BearerToken + `"}}'`,
		},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	if err := list(kube.FromConfig(byCommand, nil)); err != nil {
		t.Errorf("a command that logs in: %v", err)
	}
	impersonating := k.Config()
	impersonating.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	if err := list(kube.FromConfig(impersonating, nil)); !apierrors.IsForbidden(err) {
		t.Errorf("impersonating: %v, want Forbidden", err)
	}

	distrusting := k.Config()
	distrusting.CAData = nil
	if err := list(kube.FromConfig(distrusting, nil)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
	c, err = kube.FromConfig(k.Config(), nil)
	if err != nil || "https://"+c.Name() != k.URL() {
		t.Errorf("a cluster without a name is %q, %v, want the host of %s", c.Name(), err, k.URL())
	}
	cfg := c.Config()
	cfg.BearerToken = "changed"
	if c.Config().BearerToken != k.Config().BearerToken {
		t.Error("Config is not a copy")
	}
}

// testRefusals covers requests that the server rejects.
func testRefusals(t *testing.T, k *kubetest.Cluster) {
	ctx := patient(t)
	c := open(t, k.Config())
	each := func(*wire.Object) error { return nil }

	unknown := sourceOf(t, c, kube.Query{Resource: nonsense})
	_, err := unknown.List(ctx, reflector.ListOptions{}, each)
	wantReason(t, "list of an unknown resource", err, reflector.NotServed)
	if !apierrors.IsNotFound(err) || !strings.HasPrefix(err.Error(), "list nonsenses.example.com in test: ") {
		t.Errorf("unknown resource: %v", err)
	}
	_, err = unknown.Watch(ctx, reflector.WatchOptions{InitialEvents: true})
	wantReason(t, "watch of an unknown resource", err, reflector.NotServed)
	_, err = sourceOf(t, c, kube.Query{Resource: nonsense, MetadataOnly: true}).List(ctx, reflector.ListOptions{}, each)
	wantReason(t, "metadata of an unknown resource", err, reflector.NotServed)
	wrong := pods
	wrong.Resource = "pots"
	_, err = sourceOf(t, c, kube.Query{Resource: wrong}).List(ctx, reflector.ListOptions{}, each)
	wantReason(t, "list of an unknown resource of the core group", err, reflector.NotServed)

	for resource, served := range map[schema.GroupVersionResource]bool{
		pods: true, deployments: true, wrong: false, nonsense: false,
	} {
		if got, err := sourceOf(t, c, kube.Query{Resource: resource}).Served(ctx); err != nil || got != served {
			t.Errorf("%s served: %t, %v, want %t", resource, got, err, served)
		}
	}

	stranger := sourceOf(t, open(t, k.UserConfig("stranger")), kube.Query{Resource: pods, Namespace: "default"})
	_, err = stranger.List(ctx, reflector.ListOptions{}, each)
	wantReason(t, "list that is forbidden", err, reflector.Unknown)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "stranger" cannot list resource "pods"`) {
		t.Errorf("list that is forbidden: %v", err)
	}
	_, err = stranger.Watch(ctx, reflector.WatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("watch that is forbidden: %v", err)
	}

	fields := sourceOf(t, c, kube.Query{Resource: pods, FieldSelector: "spec.colour=red"})
	_, err = fields.List(ctx, reflector.ListOptions{}, each)
	wantReason(t, "list by a field that is not supported", err, reflector.Unknown)
	if !apierrors.IsBadRequest(err) {
		t.Errorf("list by a field that is not supported: %v", err)
	}
	_, err = fields.Watch(ctx, reflector.WatchOptions{InitialEvents: true})
	wantReason(t, "watch with parameters that are not supported", err, reflector.NotSupported)
	// The server rejects this like one that does not support initial events.
	unmatched := kube.Query{Resource: pods, Tweak: func(o *metav1.ListOptions) { o.ResourceVersionMatch = "" }}
	_, err = sourceOf(t, c, unmatched).Watch(ctx, reflector.WatchOptions{InitialEvents: true})
	wantReason(t, "watch with invalid parameters", err, reflector.NotSupported)
	if !apierrors.IsInvalid(err) {
		t.Errorf("watch with invalid parameters: %v", err)
	}

	const future = "9000000000000000000"
	_, err = sourceOf(t, c, kube.Query{Resource: pods}).List(ctx, reflector.ListOptions{Version: future}, each)
	if after := wantReason(t, "list in the future", err, reflector.TooLarge); after <= 0 {
		t.Errorf("list in the future: retry after %s", after)
	}
	w, err := sourceOf(t, c, kube.Query{Resource: pods}).Watch(ctx,
		reflector.WatchOptions{Version: future, InitialEvents: true})
	if err == nil {
		defer w.Close()
		_, err = w.Next()
	}
	wantReason(t, "initial events in the future", err, reflector.TooLarge)
}
