// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/cmd/watershed/internal/verification"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/simulated"
)

// partial is the way to a simulated cluster. Lists of an exact version, which only a
// verification requests, have the pods of one namespace only, for as long as hidden is not
// 0. Then all others of the copy seem not to exist.
type partial struct {
	*httptest.Server
	hidden atomic.Int64
}

func newPartial(t *testing.T, c *simulated.Cluster) *partial {
	t.Helper()
	transport, err := rest.TransportFor(c.Config())
	expect.NoError(t, err)
	target, err := url.Parse(c.Config().Host)
	expect.NoError(t, err)
	p := &partial{}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the transport adds that of the cluster
			if r.In.URL.Query().Get("resourceVersionMatch") == "Exact" && r.In.URL.Path == "/api/v1/pods" &&
				p.hidden.Load() != 0 {
				p.hidden.Add(-1)
				r.Out.URL.Path = "/api/v1/namespaces/" + c.Pod(0).Namespace + "/pods"
			}
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.Server = httptest.NewTLSServer(proxy)
	t.Cleanup(p.Close)
	return p
}

// partialConfig writes a kubeconfig for servers.
func partialConfig(t *testing.T, servers map[string]*partial) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	for name, s := range servers {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: s.URL, InsecureSkipTLSVerify: true}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: name}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(t.TempDir(), "config")
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
	return path
}

func TestVerify(t *testing.T) {
	sim, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 200, Namespaces: 10})
	expect.NoError(t, err)
	t.Cleanup(sim.Close)
	good, bad := newPartial(t, sim.Cluster(0)), newPartial(t, sim.Cluster(1))
	s := &state.Dir{Path: t.TempDir()}
	startServe(t, s, "--kubeconfig", partialConfig(t, map[string]*partial{"good": good, "bad": bad}))
	verify := func(args ...string) (string, error) {
		return command(t.Context(), append([]string{"verify", "--state-dir", s.Path}, args...)...)
	}
	expect.Soon(t, "the copies have synced", func() bool {
		out, err := verify("-o", "json")
		return err == nil && strings.Count(out, `"pods"`) == 2
	})

	out, err := verify()
	if err != nil || !regexp.MustCompile(`(?m)^good +pods +\d+ +200 +\S+ +none$`).MatchString(out) ||
		!strings.Contains(out, "no divergence") {
		t.Errorf("verify prints %v\n%s", err, out)
	}
	bad.hidden.Store(-1)
	out, err = verify("--cluster", "bad", "--cluster", "good", "--resource", "pods", "--repair")
	if err == nil || !strings.Contains(err.Error(), "in 1 of 2 copies") ||
		!regexp.MustCompile(`(?m)^bad +pods .* (\d+) extra, (\d+) left after the repair\n +extra .*copy \d+\)$`).
			MatchString(out) {
		t.Errorf("verify of a copy that differs prints %v\n%s", err, out)
	}
	if strings.Contains(out, "namespaces") || !strings.Contains(out, "more\n") {
		t.Errorf("it prints\n%s", out)
	}
	bad.hidden.Store(1)
	out, err = verify("--cluster", "bad", "--resource", "pods", "--repair", "--deep", "-o", "json")
	var status verification.Status
	if json.Unmarshal([]byte(out), &status) != nil || err == nil || len(status.Results) != 1 {
		t.Fatalf("verify as JSON prints %v\n%s", err, out)
	}
	if r := status.Results[0]; r.Remaining == nil || *r.Remaining != 0 || r.Diverged() == 0 || len(r.Examples) != 20 ||
		r.Cluster != "bad" || r.Version == "" {
		t.Errorf("the result is %+v", r)
	}
	for want, args := range map[string][]string{
		`no cluster "nosuch"`:             {"--cluster", "nosuch"},
		`mirrors the resource "pod"`:      {"--resource", "pod"},
		"see serve --group-listen":        {"--replicas"},
		"use table, json or yaml":         {"-o", "wide"},
		"--state-dir has no effect":       {"--server", "https://127.0.0.1:1"},
		"unknown command \"more\" for \"": {"more"},
	} {
		if _, err := verify(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want something about %s", args, err, want)
		}
	}
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // no server
	if _, err := command(t.Context(), "verify", "--kubeconfig", partialConfig(t, map[string]*partial{"good": good}),
		"--context", "good"); err == nil || !strings.Contains(err.Error(), `context "good" does not name a server`) {
		t.Errorf("a context of a cluster: %v", err)
	}
}

// TestVerify_contextOfTheFleet uses the server by a context that watershed kubeconfig has
// written.
func TestVerify_contextOfTheFleet(t *testing.T) {
	sim, err := simulated.New(&simulated.Options{Pods: 100})
	expect.NoError(t, err)
	t.Cleanup(sim.Close)
	s := &state.Dir{Path: t.TempDir()}
	startServe(t, s, "--kubeconfig", partialConfig(t, map[string]*partial{"one": newPartial(t, sim.Cluster(0))}),
		"--verify-every", "300ms")
	path := filepath.Join(t.TempDir(), "replica.yaml")
	if out, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path, "--write", path); err != nil {
		t.Fatal(out, err)
	}
	expect.Soon(t, "the copy was verified", func() bool {
		out, err := command(t.Context(), "verify", "--kubeconfig", path, "--context", "watershed-fleet", "--resource",
			"pods")
		if err != nil && !strings.Contains(err.Error(), "no selected cluster") &&
			!strings.Contains(err.Error(), "has not answered yet") && !strings.Contains(err.Error(), "not compared") {
			t.Fatal(out, err)
		}
		return err == nil && strings.Contains(out, fmt.Sprint(100))
	})
}

// TestVerify_reportsWhatWasNeverRead checks that a resource that the cluster forbids and a
// cluster that cannot be reached count as not compared.
func TestVerify_reportsWhatWasNeverRead(t *testing.T) {
	sim, err := simulated.New(&simulated.Options{Clusters: 2, Pods: 20})
	expect.NoError(t, err)
	t.Cleanup(sim.Close)
	namespaces := schema.GroupResource{Resource: "namespaces"}
	configs := map[string]*rest.Config{
		"good": reviewing(t, sim.Cluster(0).Config(), nil),
		"forbidding": reviewing(t, sim.Cluster(1).Config(),
			refuse("namespaces", apierrors.NewForbidden(namespaces, "", nil))),
		"unreachable": {Host: "https://127.0.0.1:1"},
	}
	dir := t.TempDir()
	s := &state.Dir{Path: filepath.Join(dir, "state")}
	startServe(t, s, "--kubeconfig", commandtest.WriteConfigs(t, filepath.Join(dir, "kubeconfig"), configs),
		"--resources", "pods,namespaces")
	verify := func(args ...string) (string, error) {
		return command(t.Context(), append([]string{"verify", "--state-dir", s.Path}, args...)...)
	}
	var out string
	expect.Soon(t, "the pods have synced", func() bool {
		out, err = verify()
		return err != nil && strings.HasSuffix(err.Error(), "2 of 5 copies not compared")
	})
	for _, want := range []string{
		`(?m)^good +namespaces .* none$`, `(?m)^forbidding +pods .* none$`,
		`(?m)^forbidding +namespaces .* not compared: .*not synced yet: .*forbidden`,
		`(?m)^unreachable +\* .* not compared: .*refused`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("verify prints %v\n%s\nwant %s", err, out, want)
		}
	}
	for _, args := range [][]string{
		{"--cluster", "unreachable"},
		{"--cluster", "unreachable", "--resource", "pods"},
		{"--cluster", "forbidding", "--resource", "namespaces", "-o", "json"},
	} {
		if _, err := verify(args...); err == nil || !strings.HasSuffix(err.Error(), "1 of 1 copy not compared") {
			t.Errorf("verify %v: %v", args, err)
		}
	}
}
