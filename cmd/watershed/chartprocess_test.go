// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// podScript runs the program as a pod would: with its own, read-only root folder, in which only
// the state directory can be written, and as the user of the security context.
const podScript = `set -e
root=$1 state=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount --bind "$state" "$root/var/lib/watershed"
exec chroot --userspec="$user" "$root" /watershed "$@"`

// podProcess is the container of a Deployment that runs as a process of this machine.
type podProcess struct {
	root, state string
	port        string
	log         *expect.Output
	cmd         *exec.Cmd
	ended       chan error
	client      *http.Client
}

// checkProcess runs the container of the Deployment in the cluster, with a token of its service
// account, and sends requests to it.
func checkProcess(t *testing.T, k *kubetest.Cluster, c *chart) {
	if out, err := exec.CommandContext(t.Context(), "unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("a mount namespace cannot be created, root is needed: %v %s", err, out)
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

	p := newPodProcess(ctx, t, k, d)
	mountSecret(t, filepath.Join(p.root, filepath.Dir(configPath)), "first", map[string]string{
		filepath.Base(configPath): liveConfig(ctx, t, k, d),
	})
	folder := filepath.Join(p.root, "etc/watershed/clusters/members")
	mountSecret(t, folder, "first", map[string]string{"eu.yaml": memberKubeconfig(t, members.Cluster(0).Config())})
	p.start(ctx, t, k, d)
	defer p.kill(t)
	p.checkRequests(ctx, t, k, d)
	// The Secret changes: one more cluster.
	mountSecret(t, folder, "second", map[string]string{
		"eu.yaml": memberKubeconfig(t, members.Cluster(0).Config()),
		"us.yaml": memberKubeconfig(t, members.Cluster(1).Config()),
	})
	p.awaitLive(t, "us")
	if log := p.log.String(); strings.Contains(log, "forbidden") ||
		strings.Count(log, "msg=\"cluster live\" cluster=eu") != 1 {
		t.Errorf("the log has a missing right, or another cluster was read again:\n%s", log)
	}
	p.checkReload(ctx, t, k, c, d)
	p.checkEnd(t)
}

// liveConfig returns the configuration file in the cluster.
func liveConfig(ctx context.Context, t *testing.T, k *kubetest.Cluster, d *appsv1.Deployment) string {
	t.Helper()
	text, err := k.Kubectl(ctx, "-n", d.Namespace, "get", "configmap", d.Name, "-o", "json")
	expect.NoError(t, err)
	return configOf(t, parseManifests(t, text), d)
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
	mountSecret(t, filepath.Join(p.root, filepath.Dir(configPath)), "second", map[string]string{
		filepath.Base(configPath): liveConfig(ctx, t, k, d),
	})
	expect.Soon(t, "the configuration is reloaded", func() bool {
		return strings.Contains(p.log.String(),
			`msg="configuration reloaded" file=`+configPath+" changed=mirror.except")
	})
}

// newPodProcess prepares the root folder of the container.
func newPodProcess(ctx context.Context, t *testing.T, k *kubetest.Cluster, d *appsv1.Deployment) *podProcess {
	t.Helper()
	p := &podProcess{root: t.TempDir(), state: t.TempDir(), log: &expect.Output{}, ended: make(chan error, 1)}
	expect.NoError(t, os.Chmod(p.root, 0o755))
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(p.root, "watershed"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	account := filepath.Join(p.root, "var/run/secrets/kubernetes.io/serviceaccount")
	for _, dir := range []string{account, filepath.Join(p.root, "var/lib/watershed")} {
		expect.NoError(t, os.MkdirAll(dir, 0o755))
	}
	token, err := k.Kubectl(ctx, "-n", d.Namespace, "create", "token", d.Spec.Template.Spec.ServiceAccountName)
	expect.NoError(t, err)
	for name, content := range map[string]string{
		"token": strings.TrimSpace(token), "ca.crt": string(k.Config().CAData), "namespace": d.Namespace,
	} {
		expect.NoError(t, os.WriteFile(filepath.Join(account, name), []byte(content), 0o644))
	}
	expect.NoError(t, os.Chown(p.state, -1, int(*d.Spec.Template.Spec.SecurityContext.FSGroup)))
	expect.NoError(t, os.Chmod(p.state, 0o2770))
	return p
}

// mountSecret writes the files of a Secret as the kubelet does: links to files in a folder that
// is replaced as a whole.
func mountSecret(t *testing.T, folder, version string, files map[string]string) {
	t.Helper()
	data := filepath.Join(folder, ".."+version)
	expect.NoError(t, os.MkdirAll(data, 0o755))
	for name, content := range files {
		expect.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(content), 0o644))
	}
	next := filepath.Join(folder, "..data_tmp")
	expect.NoError(t, os.Symlink(".."+version, next))
	expect.NoError(t, os.Rename(next, filepath.Join(folder, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil &&
			!os.IsExist(err) {
			t.Fatal(err)
		}
	}
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

// start runs the container with the arguments and variables of the Deployment, and those that
// the kubelet adds. Only the port differs: that of the container may be in use here.
func (p *podProcess) start(ctx context.Context, t *testing.T, k *kubetest.Cluster, d *appsv1.Deployment) {
	t.Helper()
	free, err := net.Listen("tcp", ":0")
	expect.NoError(t, err)
	_, p.port, _ = net.SplitHostPort(free.Addr().String())
	free.Close()
	security, container := d.Spec.Template.Spec.SecurityContext, d.Spec.Template.Spec.Containers[0]
	user := fmt.Sprintf("%d:%d", *security.RunAsUser, *security.RunAsGroup)
	args := slices.Concat([]string{
		"-m", "sh", "-c", podScript, "sh", p.root, p.state, user,
	}, container.Args, []string{"--listen=:" + p.port})
	p.cmd = exec.CommandContext(ctx, "unshare", args...)
	api, err := url.Parse(k.URL())
	expect.NoError(t, err)
	p.cmd.Env = []string{
		"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port(),
		"PATH=" + os.Getenv("PATH"),
	}
	for _, e := range container.Env {
		p.cmd.Env = append(p.cmd.Env, e.Name+"="+e.Value)
	}
	p.cmd.Stderr = p.log
	expect.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
}

// kill ends the process if it still runs.
func (p *podProcess) kill(t *testing.T) {
	_ = p.cmd.Process.Kill()
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
		bundle, err := serving.ReadBundle(filepath.Join(p.state, "authority.pem"))
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
		case err := <-p.ended:
			p.ended <- err
			t.Fatalf("the program has ended: %v\n%s", err, p.log)
		default:
		}
		code, body, err := p.get(ctx, container.ReadinessProbe.HTTPGet.Path, "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("readiness: %d %s", code, body)
		}
		return err
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

// checkEnd checks that the program ends in the time that the kubelet gives it.
func (p *podProcess) checkEnd(t *testing.T) {
	t.Helper()
	expect.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ended:
		expect.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("the program does not end")
	}
}
