// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client sends requests to the running program.
type client struct {
	http.Client
	address, token string
}

// start runs the program until the test ends.
func start(t *testing.T, cfg *rest.Config, token string) *client {
	t.Helper()
	cluster, err := kube.FromConfig(cfg, &kube.Options{Name: "test"})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	printed, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, cluster, "127.0.0.1:0", token) }()
	c := &client{token: token, Client: http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		cancel()
		expect.NoError(t, <-ended)
		cluster.CloseIdleConnections()
	})
	line := make([]byte, 200)
	n, err := printed.Read(line)
	expect.NoError(t, err)
	_, text, _ := strings.Cut(string(line[:n]), "answering at ")
	c.address, _, _ = strings.Cut(text, "/query/")
	return c
}

// send returns the code and the body of a response.
func (c *client) send(t *testing.T, method, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.address+path, http.NoBody)
	expect.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := c.Do(r)
	expect.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	expect.NoError(t, err)
	return resp.StatusCode, strings.TrimSpace(string(body))
}

// want sends a request until the response is right: the copy may lag behind the cluster.
func (c *client) want(t *testing.T, path, want string) {
	t.Helper()
	got := ""
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if _, got = c.send(t, http.MethodGet, path); got == want {
			return
		}
	}
	t.Errorf("GET %s: %s, want %s", path, got, want)
}

func TestRun_withoutCluster(t *testing.T) {
	c := start(t, &rest.Config{Host: "http://127.0.0.1:1"}, "secret")
	for _, request := range []struct {
		method, path string
		code         int
		text         string
	}{
		{http.MethodGet, "/query/pods", http.StatusServiceUnavailable, "not been read completely"},
		{http.MethodGet, "/query/secrets", http.StatusNotFound, "only deployments.apps, pods"},
		{http.MethodPost, "/query/pods", http.StatusMethodNotAllowed, "use GET"},
		{http.MethodGet, "/status", http.StatusOK, `"pods":`},
	} {
		code, body := c.send(t, request.method, request.path)
		if code != request.code || !strings.Contains(body, request.text) {
			t.Errorf("%s %s: %d %s, want %d and %q", request.method, request.path, code, body, request.code,
				request.text)
		}
	}
	c.token = "wrong"
	if code, body := c.send(t, http.MethodGet, "/query/pods"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d %s", code, body)
	}
}

// TestRun_realCluster follows a deployment and its pods through the routes.
func TestRun_realCluster(t *testing.T) {
	cluster := kubetest.Start(t, &kubetest.Options{Nodes: 1})
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := cluster.Kubectl(t.Context(), args...)
		expect.NoError(t, err)
		return out
	}
	c := start(t, cluster.Config(), "")
	c.want(t, "/query/pods?index=app&value=web&keys=true", `{"keys":[]}`)
	kubectl("create", "deployment", "web", "--image=web", "--replicas=2")
	kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=60s")
	names := strings.Fields(kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}"))
	if len(names) != 2 {
		t.Fatalf("the deployment has the pods %v", names)
	}
	keys := `{"keys":["default/` + strings.Join(names, `","default/`) + `"]}`
	c.want(t, "/query/pods?index=app&value=web&keys=true", keys)
	c.want(t, "/query/pods?namespace=default&labelSelector=app%3Dweb&keys=true", keys)
	node := kubectl("get", "pod", names[0], "-o", "jsonpath={.spec.nodeName}")
	c.want(t, "/query/pods?index=node&value="+node+"&keys=true", keys)
	c.want(t, "/query/deployments.apps/default/web",
		strings.TrimSpace(kubectl("get", "--raw", "/apis/apps/v1/namespaces/default/deployments/web")))
	kubectl("delete", "deployment", "web", "--timeout=60s")
	c.want(t, "/query/pods?index=app&value=web&keys=true", `{"keys":[]}`)
}
