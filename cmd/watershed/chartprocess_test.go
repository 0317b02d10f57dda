// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/podprocess"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// podProcess is the container of a Deployment that runs as a process of this machine.
type podProcess struct {
	*podprocess.Process
	port   string
	log    *expect.Output
	client *http.Client
}

// checkProcess runs the container of the Deployment in the cluster, with a token of its service
// account, and sends requests to it.
func checkProcess(t *testing.T, k *kubetest.Cluster, c *chart) {
	if err := podprocess.Available(t.Context()); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	members, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20, Namespaces: 4})
	expect.NoError(t, err)
	defer members.Close()
	_, err = c.run(ctx, "upgrade", "--install", chartRelease, chartDir, "--namespace", chartNamespace, "--set",
		"clusters.kubeconfigSecrets[0].name=members")
	expect.NoError(t, err)
	text, err := k.Kubectl(ctx, "-n", chartNamespace, "get", "deployment", chartRelease, "-o", "json")
	expect.NoError(t, err)
	d := deploymentOf(t, parseManifests(t, text))
	createPod(ctx, t, k, "first")
	pods := rbacv1.PolicyRule{
		APIGroups: []string{""},
		Resources: []string{"pods"},
		Verbs:     []string{"get", "list", "watch"},
	}
	expect.NoError(t, k.Grant(ctx, "jane", "", pods))

	writeMembers(ctx, t, k, d.Namespace, map[string]*rest.Config{"eu": members.Cluster(0).Config()})
	p := startPodProcess(ctx, t, k, d)
	defer p.kill(t)
	p.checkRequests(ctx, t, k, d)
	// The Secret changes: one more cluster.
	writeMembers(ctx, t, k, d.Namespace, map[string]*rest.Config{
		"eu": members.Cluster(0).Config(), "us": members.Cluster(1).Config(),
	})
	expect.NoError(t, p.Refresh(ctx))
	p.awaitLive(t, "us")
	if log := p.log.String(); strings.Contains(log, "forbidden") ||
		strings.Count(log, "msg=\"cluster live\" cluster=eu") != 1 {
		t.Errorf("the log has a missing right, or another cluster was read again:\n%s", log)
	}
	p.checkReload(ctx, t, k, c, d)
	expect.NoError(t, p.Stop())
}

// checkReload upgrades the release with another resource. The Deployment does not change, and
// the running program mirrors the resource no longer.
func (p *podProcess) checkReload(
	ctx context.Context, t *testing.T, k *kubetest.Cluster, c *chart, d *appsv1.Deployment,
) {
	t.Helper()
	_, err := c.run(ctx, "upgrade", chartRelease, chartDir, "--namespace", chartNamespace, "--reuse-values", "--set",
		"config.mirror.except={services}")
	expect.NoError(t, err)
	text, err := k.Kubectl(ctx, "-n", chartNamespace, "get", "deployment", chartRelease, "-o", "json")
	expect.NoError(t, err)
	if now := deploymentOf(t, parseManifests(t, text)); now.Generation != d.Generation {
		t.Errorf("the Deployment has generation %d, want %d: its pods restart", now.Generation, d.Generation)
	}
	expect.NoError(t, p.Refresh(ctx))
	expect.Soon(t, "the configuration is reloaded", func() bool {
		return strings.Contains(p.log.String(),
			`msg="configuration reloaded" file=`+configPath+" changed=mirror.except")
	})
}

// startPodProcess starts the container of a Deployment. Only the port differs: that of the
// container may be in use here.
func startPodProcess(ctx context.Context, t *testing.T, k *kubetest.Cluster, d *appsv1.Deployment) *podProcess {
	t.Helper()
	root := t.TempDir()
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(root, "watershed"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	free, err := net.Listen("tcp", ":0")
	expect.NoError(t, err)
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	p := &podProcess{port: port, log: &expect.Output{}}
	p.Process, err = podprocess.New(ctx, &podprocess.Options{
		Namespace: d.Namespace, Spec: d.Spec.Template.Spec, Config: k.Config(), Root: root, State: t.TempDir(),
		Entrypoint: []string{"/watershed"}, Args: []string{"--listen=:" + port}, Log: p.log,
	})
	expect.NoError(t, err)
	expect.NoError(t, p.Start(ctx))
	return p
}

// writeMembers replaces the Secret with the kubeconfigs of the member clusters.
func writeMembers(
	ctx context.Context, t *testing.T, k *kubetest.Cluster, namespace string, members map[string]*rest.Config,
) {
	t.Helper()
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, StringData: map[string]string{},
	}
	secret.Name, secret.Namespace = "members", namespace
	for name, config := range members {
		secret.StringData[name+".yaml"] = memberKubeconfig(t, config)
	}
	text, err := json.Marshal(secret)
	expect.NoError(t, err)
	_, err = k.KubectlInput(ctx, string(text), "apply", "-f", "-")
	expect.NoError(t, err)
}

// memberKubeconfig returns a kubeconfig with one context.
func memberKubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"c": {Server: config.Host, CertificateAuthorityData: config.CAData, TLSServerName: config.ServerName},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"c": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		CurrentContext: "c",
	})
	expect.NoError(t, err)
	return string(text)
}

// kill ends the process if it still runs.
func (p *podProcess) kill(t *testing.T) {
	p.Kill()
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
	if t.Failed() {
		t.Logf("log of the program:\n%s", p.log)
	}
}

// get sends a request. The certificate must be that of the Service.
func (p *podProcess) get(ctx context.Context, path, token string) (int, string, error) {
	if p.client == nil {
		bundle, err := serving.ReadBundle(p.StatePath("/var/lib/watershed/authority.pem"))
		if err != nil {
			return 0, "", err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		p.client = &http.Client{
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: chartRelease + "." + chartNamespace + ".svc"},
			},
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+p.port+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// checkRequests waits until the container is ready by its own probes, and reads the cluster.
func (p *podProcess) checkRequests(ctx context.Context, t *testing.T, k *kubetest.Cluster, d *appsv1.Deployment) {
	t.Helper()
	container := d.Spec.Template.Spec.Containers[0]
	expect.Eventually(t, time.Minute, func() error {
		select {
		case <-p.Ended():
			t.Fatalf("the program has ended: %v\n%s", p.Err(), p.log)
		default:
		}
		return p.Ready(ctx, p.port)
	})
	p.awaitLive(t, "in-cluster")
	p.awaitLive(t, "eu")
	pods := "/clusters/in-cluster/api/v1/pods"
	for _, r := range []struct {
		path, token string
		want        int
	}{
		{container.LivenessProbe.HTTPGet.Path, "", http.StatusOK},
		{pods, "", http.StatusUnauthorized},
		{pods, k.UserConfig("joe").BearerToken, http.StatusForbidden},
		{pods, k.UserConfig("jane").BearerToken, http.StatusOK},
	} {
		code, body, err := p.get(ctx, r.path, r.token)
		expect.NoError(t, err)
		if code != r.want {
			t.Errorf("%s: %d, want %d: %s", r.path, code, r.want, body)
		}
	}
	_, body, err := p.get(ctx, pods, k.UserConfig("jane").BearerToken)
	expect.NoError(t, err)
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	expect.NoError(t, json.Unmarshal([]byte(body), &list))
	if len(list.Items) != 1 || list.Items[0].Metadata.Name != "first" {
		t.Errorf("the pods are %+v", list.Items)
	}
}

// awaitLive waits until the log has the line of a cluster that was read.
func (p *podProcess) awaitLive(t *testing.T, cluster string) {
	t.Helper()
	expect.Soon(t, "cluster "+cluster+" is live", func() bool {
		return strings.Contains(p.log.String(), "msg=\"cluster live\" cluster="+cluster+" ")
	})
}
