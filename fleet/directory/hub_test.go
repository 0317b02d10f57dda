// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

var profileResource = schema.GroupVersionResource{
	Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles",
}

// hub is a hub and a member cluster.
type hub struct {
	*kubetest.Cluster
	member  *kubetest.Cluster
	cluster *kube.Cluster
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
}

func TestHub(t *testing.T) {
	h := &hub{
		Cluster: kubetest.Start(t, &kubetest.Options{Name: "hub", Users: []kubetest.User{{Name: "nobody"}}}),
		member: kubetest.Start(t, &kubetest.Options{Name: "member", Users: []kubetest.User{
			{Name: "second", Groups: []string{"system:masters"}},
		}}),
	}
	h.cluster = h.open(t, h.Config())
	var err error
	h.client, err = kubernetes.NewForConfig(h.Config())
	must(t, err)
	h.dynamic, err = dynamic.NewForConfig(h.Config())
	must(t, err)
	for _, name := range []string{"one", "two", "ours", "theirs"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "ours" || name == "theirs" {
			n.Labels = map[string]string{"x-k8s.io/cluster-inventory-consumer": name}
		}
		_, err := h.client.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{})
		must(t, err)
	}
	t.Run("refused", h.testRefused)
	t.Run("ClusterAPI", h.testClusterAPI)
	t.Run("ClusterProfiles", h.testClusterProfiles)
	t.Run("profile secrets", h.testProfileSecrets)
	t.Run("restart", h.testRestart)
}

// open returns a connection for the duration of the test.
func (h *hub) open(t *testing.T, cfg *rest.Config) *kube.Cluster {
	t.Helper()
	c, err := kube.FromConfig(cfg, nil)
	must(t, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// kubeconfig returns a kubeconfig of the member.
func (h *hub) kubeconfig(user string) []byte {
	cfg := h.member.Config()
	if user != "" {
		cfg = h.member.UserConfig(user)
	}
	return kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Clusters["x"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
		k.AuthInfos["x"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	}, "x")
}

// reach fails unless an entry connects to the member.
func (h *hub) reach(t *testing.T, e fleet.Entry) {
	t.Helper()
	if e.Err != nil {
		t.Fatal(e.Err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if resources, err := h.open(t, e.Config).Resources(ctx); err != nil || len(resources) == 0 {
		t.Errorf("%s cannot be reached: %v", e.Name, err)
	}
	if e.Config.Host != h.member.Config().Host {
		t.Errorf("%s connects to %s", e.Name, e.Config.Host)
	}
}

// secret creates or changes a Secret.
func (h *hub) secret(
	t *testing.T, namespace, name string, kind corev1.SecretType, labels map[string]string, data map[string][]byte,
) {
	t.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}, Type: kind, Data: data,
	}
	secrets := h.client.CoreV1().Secrets(namespace)
	if _, err := secrets.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
		must(t, err)
	}
}

func (h *hub) deleteSecret(t *testing.T, namespace, name string) {
	t.Helper()
	must(t, h.client.CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// capi creates or changes the kubeconfig of a cluster of Cluster API.
func (h *hub) capi(t *testing.T, namespace, cluster string, kubeconfig []byte) {
	t.Helper()
	h.secret(t, namespace, cluster+"-kubeconfig", "cluster.x-k8s.io/secret",
		map[string]string{"cluster.x-k8s.io/cluster-name": cluster}, map[string][]byte{"value": kubeconfig})
}

// profile creates or changes a profile with a status.
func (h *hub) profile(t *testing.T, namespace, name string, status map[string]any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	profiles := h.dynamic.Resource(profileResource).Namespace(namespace)
	p, err := profiles.Get(ctx, name, metav1.GetOptions{})
	for err != nil { // the server may not serve the resource everywhere yet
		p, err = profiles.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": profileResource.GroupVersion().String(), "kind": "ClusterProfile",
			"metadata": map[string]any{"name": name, "namespace": namespace},
			"spec":     map[string]any{"clusterManager": map[string]any{"name": "test"}},
		}}, metav1.CreateOptions{})
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	p.Object["status"] = status
	_, err = profiles.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	must(t, err)
}

func (h *hub) testRefused(t *testing.T) {
	var log logBuffer
	hub := h.open(t, h.UserConfig("nobody"))
	seen := follow(t, directory.NewClusterAPI(hub, &directory.ClusterAPIOptions{Logger: log.logger()}))
	seen.quiet("Secrets may not be read")
	if seen.count() != 0 || !strings.Contains(log.String(), "forbidden") {
		t.Errorf("%d reports, logged:\n%s", seen.count(), log.String())
	}
	for _, d := range []fleet.Directory{directory.NewClusterAPI(nil, nil), directory.NewClusterProfile(nil, nil)} {
		if err := d.Follow(t.Context(), nil); err == nil {
			t.Errorf("%T without a hub", d)
		}
	}
}

func (h *hub) testClusterAPI(t *testing.T) {
	seen := follow(t, directory.NewClusterAPI(h.cluster, nil))
	seen.names()
	h.capi(t, "one", "prod", h.kubeconfig(""))
	h.capi(t, "two", "prod", h.kubeconfig(""))
	// Other Secrets of Cluster API, and Secrets that are not its own.
	label := map[string]string{"cluster.x-k8s.io/cluster-name": "prod"}
	h.secret(t, "one", "prod-ca", "cluster.x-k8s.io/secret", label, nil)
	h.secret(t, "one", "prod-user-kubeconfig", "cluster.x-k8s.io/secret", label,
		map[string][]byte{"value": h.kubeconfig("")})
	h.secret(t, "one", "other-kubeconfig", "Opaque", map[string]string{"cluster.x-k8s.io/cluster-name": "other"}, nil)
	h.secret(t, "one", "third-kubeconfig", "cluster.x-k8s.io/secret", nil, nil)
	was := seen.names("one.prod", "two.prod")
	h.reach(t, was["one.prod"])
	h.reach(t, was["two.prod"])

	h.capi(t, "one", "prod", h.kubeconfig("second"))
	now := seen.until("it is renewed", func(m map[string]fleet.Entry) bool {
		return m["one.prod"].Access != was["one.prod"].Access
	})
	h.reach(t, now["one.prod"])
	if now["two.prod"].Access != was["two.prod"].Access {
		t.Error("another one has changed")
	}
	h.secret(t, "one", "prod-kubeconfig", "cluster.x-k8s.io/secret",
		map[string]string{"cluster.x-k8s.io/cluster-name": "prod", "more": "labels"},
		map[string][]byte{"value": h.kubeconfig("second")})
	labelled := seen.until("another label", func(m map[string]fleet.Entry) bool {
		return m["one.prod"].Labels["more"] == "labels"
	})
	if labelled["one.prod"].Access != now["one.prod"].Access {
		t.Error("other labels are another access")
	}

	for what, kubeconfig := range map[string][]byte{
		"nothing": nil,
		"noise":   []byte("this: is: *no-kubeconfig"),
		"command": kubeconfigWith(func(k *clientcmdapi.Config) {
			k.AuthInfos["x"] = &clientcmdapi.AuthInfo{
				Exec: &clientcmdapi.ExecConfig{
					Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never",
				},
			}
		}, "x"),
		"token file": kubeconfigWith(func(k *clientcmdapi.Config) {
			k.AuthInfos["x"] = &clientcmdapi.AuthInfo{TokenFile: "/etc/hostname"}
		}, "x"),
		"certificate": kubeconfigWith(func(k *clientcmdapi.Config) {
			k.Clusters["x"].CertificateAuthority = "/etc/hostname"
		}, "x"),
	} {
		h.capi(t, "one", "prod", kubeconfig)
		got := seen.until(what, func(m map[string]fleet.Entry) bool {
			return m["one.prod"].Err != nil && m["two.prod"].Err == nil
		})
		if err := got["one.prod"].Err; !strings.Contains(err.Error(), "one/prod-kubeconfig") {
			t.Errorf("%s: %v", what, err)
		}
		h.capi(t, "one", "prod", h.kubeconfig(""))
		seen.until("it is mended", func(m map[string]fleet.Entry) bool {
			return m["one.prod"].Access == was["one.prod"].Access
		})
	}
	h.deleteSecret(t, "one", "prod-kubeconfig")
	seen.names("two.prod")

	here := follow(t, directory.NewClusterAPI(h.cluster, &directory.ClusterAPIOptions{Namespace: "one"}))
	here.names()
	h.capi(t, "one", "new", h.kubeconfig(""))
	here.names("one.new")
	seen.names("one.new", "two.prod")
}

// testRestart is last, because it disturbs all other tests. It uses both kinds of
// resources, a built-in one and a custom one: a server that has just started does not
// serve custom ones for a moment.
func (h *hub) testRestart(t *testing.T) {
	h.capi(t, "one", "kept", h.kubeconfig(""))
	h.profile(t, "one", "kept", nil)
	capi := follow(t, directory.NewClusterAPI(h.cluster, &directory.ClusterAPIOptions{Namespace: "one"}))
	profiles := follow(t, directory.NewClusterProfile(h.cluster,
		&directory.ClusterProfileOptions{Namespace: "one", Consumer: "ours"}))
	kept := func(m map[string]fleet.Entry) bool { _, ok := m["one.kept"]; return ok }
	capi.until("before", kept)
	profiles.until("before", kept)
	before := [2]int{capi.count(), profiles.count()}
	h.APIServer.Kill()
	capi.quiet("the hub is away")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	must(t, h.APIServer.Start(ctx))
	must(t, h.WaitReady(ctx))
	h.capi(t, "one", "after", h.kubeconfig(""))
	h.profile(t, "one", "after", nil)
	after := func(m map[string]fleet.Entry) bool { _, ok := m["one.after"]; return ok }
	capi.until("after", after)
	profiles.until("after", after)
	for i, d := range []*recorder{capi, profiles} {
		if n := d.count() - before[i]; n != 1 {
			t.Errorf("directory %d: %d reports, want one", i, n)
		}
	}
	for _, d := range []*recorder{capi, profiles} {
		all := d.history()
		for i := 1; i < len(all); i++ {
			if len(all[i]) < len(all[i-1]) {
				t.Errorf("clusters are removed: %v after %v", all[i], all[i-1])
			}
		}
	}
}

// refused fails unless the member refuses a configuration.
func (h *hub) refused(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := h.open(t, cfg).Resources(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the member is reached without credentials: %v", err)
	}
}
