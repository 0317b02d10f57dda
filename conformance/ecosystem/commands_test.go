// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package ecosystem_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/expect"
)

// output runs a program until its end and returns what it prints.
func output(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, tail(complaints.String()))
	}
	return string(out), nil
}

// fetch returns the body of a response with status 200.
func fetch(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, answer.Status, body)
	}
	return string(body), err
}

// kubeStateMetrics compares all series, with their values, before and after writes.
func kubeStateMetrics(t *testing.T, w *comparedCluster) {
	address := map[*side]string{}
	for _, s := range w.sides() {
		port := freePort(t)
		address[s] = fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
		start(t, w.program("kube-state-metrics"), "--kubeconfig", s.kubeconfig, "--host", "127.0.0.1",
			"--telemetry-host", "127.0.0.1",
			"--port", strconv.Itoa(port), "--telemetry-port", strconv.Itoa(freePort(t)))
	}
	series := func(ctx context.Context, s *side) (string, error) { return fetch(ctx, address[s]) }
	w.compare(t, "series", `kube_deployment_status_replicas_available{namespace="shop",deployment="web"} 3`, series)
	w.kubectl(t, "create", "deployment", "counted", "-n", "shop", "--image=registry.example/counted", "--replicas=4")
	w.kubectl(t, "delete", "pod", "lonely", "-n", "shop", "--grace-period=0", "--force")
	w.compare(t, "series after writes",
		`kube_deployment_status_replicas_available{namespace="shop",deployment="counted"} 4`, series)
	if t.Failed() {
		return
	}
	text, err := series(t.Context(), w.passing)
	expect.NoError(t, err)
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	t.Logf("%d series", n)
}

// popeye compares the reports about the whole cluster.
func popeye(t *testing.T, w *comparedCluster) {
	t.Setenv("HOME", t.TempDir())
	w.compare(t, "report", `"linter": "pods"`, func(ctx context.Context, s *side) (string, error) {
		out, err := output(ctx, w.program("popeye"), "--kubeconfig", s.kubeconfig, "-A", "-o", "json",
			"--force-exit-zero", "--logs", os.DevNull)
		return masked(indented(out)), err
	})
}

// stern compares the logs of the pods of a namespace, from the past and as they are written.
func stern(t *testing.T, w *comparedCluster) {
	args := func(s *side, more ...string) []string {
		return append([]string{
			".", "--kubeconfig", s.kubeconfig, "-n", "shop", "-l", sternSelector, "--color", "never",
		}, more...)
	}
	pods := w.identifyContainers(t)
	w.compare(t, "past", "line 19 of the past", func(ctx context.Context, s *side) (string, error) {
		return output(ctx, w.program("stern"), args(s, "--no-follow", "--tail", "5")...)
	})
	following := map[*side]*program{}
	for _, s := range w.sides() {
		following[s] = start(t, w.program("stern"), args(s, "--tail", "1")...)
	}
	// shown returns the output of a side that follows a number of logs.
	shown := func(s *side, logs int) (string, error) {
		text := following[s].output.String()
		if n := strings.Count("\n"+text, "\n+ "); n < logs {
			return "", fmt.Errorf("%d of %d logs are followed: %s", n, logs, tail(text))
		}
		return text, following[s].running()
	}
	w.compare(t, "begin to follow", "line 19 of the past", func(_ context.Context, s *side) (string, error) {
		return shown(s, pods)
	})
	// k9s, which shows the same log later, drops lines if more than 50 arrive at once.
	for i := range 20 {
		expect.NoError(t, w.cluster.AppendLog(fmt.Sprintf("line %d that is written now", i)))
	}
	w.compare(t, "follow", "line 19 that is written now", func(_ context.Context, s *side) (string, error) {
		return shown(s, pods)
	})
	w.kubectl(t, "scale", "statefulset", "db", "-n", "shop", "--replicas=3")
	w.kubectl(t, "wait", "pod", "db-2", "-n", "shop", "--for=create", "--timeout=60s")
	w.kubectl(t, "wait", "pod", "db-2", "-n", "shop", "--for=condition=Ready", "--timeout=60s")
	w.identifyContainers(t)
	w.compare(t, "a pod that is created", "db-2", func(_ context.Context, s *side) (string, error) {
		return shown(s, pods+1)
	})
}

const sternSelector = "app in (web, db)"

// identifyContainers gives the containers that stern follows an identity, which kwok does not
// and stern needs, and returns the number of pods.
func (w *comparedCluster) identifyContainers(t *testing.T) int {
	t.Helper()
	pods := strings.Fields(w.kubectl(t, "get", "pods", "-n", "shop", "-l", sternSelector, "-o", "name"))
	for _, pod := range pods {
		w.kubectl(t, "patch", pod, "-n", "shop", "--subresource=status", "--type=json",
			"-p", `[{"op":"add","path":"/status/containerStatuses/0/containerID","value":"kwok://`+pod+`"}]`)
	}
	return len(pods)
}
