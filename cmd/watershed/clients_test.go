// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// listedPod exists when the clients list pods. watchedPod is created when all of them have
// listed, so that only a watch returns it.
const listedPod, watchedPod = "first", "watched"

// reading is one client with one kind of credentials. It reads pods of the namespace
// default, and may not read nodes.
type reading struct {
	userContext
	kubeconfig string // a file whose current context has the credentials
	kubectl    string // the program
	modules    string // of Node
	// listed is called when the client has listed pods.
	listed func()
}

// errDoesNotApply means that a client does not know a kind of credentials of a kubeconfig.
var errDoesNotApply = errors.New("the client does not know these credentials")

// readers are the clients. Each returns nil if it has listed the pod, was refused the nodes,
// and has received the event of the other pod.
var readers = map[string]func(context.Context, *reading) error{
	"kubectl": readWithKubectl, "client-go": readWithClientGo, "curl": readWithCurl, "node": readWithNode,
}

// refused checks the text that a client reports if it lists nodes.
func (r *reading) refused(text string) error {
	// JSON has escaped quotes.
	want := fmt.Sprintf("User \"%s\" cannot list resource \"nodes\" in API group \"\" at the cluster scope", r.user)
	if !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), want) {
		return fmt.Errorf("list nodes: %q, want %q", text, want)
	}
	return nil
}

// follow starts a program that prints pods, and ends it when it has printed both.
func (r *reading) follow(ctx context.Context, pods []string, name string, args ...string) (printed string, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+r.modules)
	var trouble strings.Builder
	cmd.Stderr = &trouble
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var all strings.Builder
	lines := bufio.NewReader(out)
	for _, pod := range pods {
		for found := false; !found && err == nil; {
			var line string
			line, err = lines.ReadString('\n')
			all.WriteString(line)
			found = strings.Contains(line, pod)
		}
		if err == nil && pod == listedPod {
			r.listed()
		}
	}
	end()
	_, _ = io.Copy(io.Discard, lines)
	_ = cmd.Wait() // it was killed
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", filepath.Base(name), err, &all, &trouble)
	}
	return all.String(), nil
}

func readWithKubectl(ctx context.Context, r *reading) error {
	args := []string{"--kubeconfig", r.kubeconfig, "--cache-dir", r.kubeconfig + ".cache", "--namespace=default", "get"}
	out, err := exec.CommandContext(ctx, r.kubectl, append(args, "nodes")...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "(Forbidden)") {
		return fmt.Errorf("get nodes: %s %w", out, err)
	}
	if err := r.refused(string(out)); err != nil {
		return err
	}
	_, err = r.follow(ctx, []string{listedPod, watchedPod}, r.kubectl, append(args, "pods", "--watch")...)
	return err
}

// readWithNode runs Kubernetes' client for Node, which does not read tokenFile of a
// kubeconfig.
func readWithNode(ctx context.Context, r *reading) error {
	if r.name == "token-file" {
		return errDoesNotApply
	}
	printed, err := r.follow(ctx, []string{listedPod, "ADDED default/" + watchedPod}, "node", "testdata/node/client.js",
		r.kubeconfig)
	if err != nil {
		return err
	}
	if !strings.Contains(printed, "nodes 403 ") {
		return fmt.Errorf("list nodes: %s", printed)
	}
	return r.refused(printed)
}

// keyedByCluster adds the header that a watch of the fleet needs. Elsewhere it has no effect.
type keyedByCluster struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (k keyedByCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Watershed-Fleet", "keyed-by-cluster")
	return k.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections closes those of the wrapped transport.
func (k keyedByCluster) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(k.RoundTripper) }

func readWithClientGo(ctx context.Context, r *reading) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	if err != nil {
		return err
	}
	// A client that reads its certificate again from files never ends.
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return err
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return keyedByCluster{next} })
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	c, err := kubernetes.NewForConfigAndClient(cfg, transport)
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("list nodes: %w", err)
	}
	if err := r.refused(err.Error()); err != nil {
		return err
	}
	pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) != 1 || pods.Items[0].Name != listedPod {
		return fmt.Errorf("%d pods are listed: %v", len(pods.Items), pods.Items)
	}
	r.listed()
	events, err := c.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		if o, is := e.Object.(metav1.Object); is && o.GetName() == watchedPod {
			return nil
		}
	}
	return errors.New("the watch has ended")
}

// readWithCurl gives curl what the kubeconfig has. Curl runs no plugins.
func readWithCurl(ctx context.Context, r *reading) error {
	config, err := clientcmd.LoadFromFile(r.kubeconfig)
	if err != nil {
		return err
	}
	at := config.Contexts[config.CurrentContext]
	user, cluster := config.AuthInfos[at.AuthInfo], config.Clusters[at.Cluster]
	authority := r.kubeconfig + ".ca"
	if err := os.WriteFile(authority, cluster.CertificateAuthorityData, 0o600); err != nil {
		return err
	}
	args := []string{"--silent", "--show-error", "--no-buffer", "--noproxy", "*", "--cacert", authority}
	switch {
	case user.Exec != nil:
		return errDoesNotApply
	case user.TokenFile != "":
		token, err := os.ReadFile(user.TokenFile)
		if err != nil {
			return err
		}
		args = append(args, "--header", "Authorization: Bearer "+string(token))
	case user.Token != "":
		args = append(args, "--header", "Authorization: Bearer "+user.Token)
	default:
		args = append(args, "--cert", user.ClientCertificate, "--key", user.ClientKey)
	}
	if user.Impersonate != "" {
		args = append(args, "--header", "Impersonate-User: "+user.Impersonate)
	}
	get := func(path string) (string, error) {
		out, err := exec.CommandContext(ctx, "curl",
			append(args, "--write-out", "\n%{http_code}", cluster.Server+path)...).CombinedOutput()
		return string(out), err
	}
	out, err := get("/api/v1/nodes")
	if err != nil || !strings.HasSuffix(out, "\n403") {
		return fmt.Errorf("list nodes: %s %w", out, err)
	}
	if err := r.refused(out); err != nil {
		return err
	}
	const pods = "/api/v1/namespaces/default/pods"
	out, err = get(pods)
	if err != nil || !strings.HasSuffix(out, "\n200") {
		return fmt.Errorf("list pods: %s %w", out, err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(strings.TrimSuffix(out, "\n200")), &list); err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].Name != listedPod {
		return fmt.Errorf("%d pods are listed: %v", len(list.Items), list.Items)
	}
	r.listed()
	args = append(args, "--header", "Watershed-Fleet: keyed-by-cluster") // needed only below /fleet
	_, err = r.follow(ctx, []string{`"` + watchedPod + `"`}, "curl",
		append(args, cluster.Server+pods+"?watch=true&resourceVersion="+list.ResourceVersion)...)
	return err
}

// contextsOf returns a kubeconfig with contexts for the server, called like those of the
// given file. The program writes it, as a user would.
func contextsOf(
	ctx context.Context, t *testing.T, program string, s *state.Dir, kubeconfig string, credentials []userContext,
	cluster string,
) (_ *clientcmdapi.Config, server string) {
	t.Helper()
	running, err := s.Server()
	if err != nil {
		t.Fatal(err)
	}
	server = "https://" + running.Address
	path := filepath.Join(filepath.Dir(kubeconfig), "of-users.yaml")
	args := []string{
		"kubeconfig", "--server", server, "--certificate-authority", s.AuthorityFile(), "--kubeconfig", kubeconfig,
		"--prefix", "", "--write", path,
	}
	for _, c := range credentials {
		args = append(args, "--map", c.name+"="+cluster)
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		t.Fatalf("watershed kubeconfig: %v: %s", err, out)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		t.Fatal(err)
	}
	return config, server
}

// testClients lets each client read with each kind of credentials, all at the same time.
// The contexts of config are for the server.
func testClients(
	ctx context.Context, t *testing.T, k *kubetest.Cluster, config *clientcmdapi.Config, credentials []userContext,
) {
	var cells, waiting sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for client, read := range readers {
		modules := ""
		switch client {
		case "node":
			if modules = installedNode(ctx, t); modules == "" {
				continue
			}
		case "curl":
			if _, err := exec.LookPath("curl"); err != nil {
				t.Log("curl is not installed: it is not tried")
				continue
			}
		}
		for _, c := range credentials {
			own := *config
			own.CurrentContext = c.name
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := clientcmd.WriteToFile(own, path); err != nil {
				t.Fatal(err)
			}
			waiting.Add(1)
			listed := sync.OnceFunc(waiting.Done)
			cells.Go(func() {
				defer listed()
				err := read(ctx, &reading{
					userContext: c, kubeconfig: path, kubectl: k.KubectlPath(), modules: modules, listed: listed,
				})
				switch {
				case errors.Is(err, errDoesNotApply):
					t.Logf("%s with %s: %v", client, c.name, err)
				case err != nil:
					t.Errorf("%s with %s: %v", client, c.name, err)
				default:
					t.Logf("%s with %s: ok", client, c.name)
				}
			})
		}
	}
	waiting.Wait()
	createPod(ctx, t, k, watchedPod)
	cells.Wait()
	if _, err := k.Kubectl(ctx, "delete", "pod", watchedPod, "--force", "--grace-period=0"); err != nil {
		t.Error(err)
	}
}
