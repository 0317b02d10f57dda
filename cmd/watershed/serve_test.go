// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/internal/expect"
)

// contextPrefix is the default prefix of the contexts of watershed kubeconfig.
const contextPrefix = "watershed-"

// output is a log that a test reads while it is written.
type output struct{ expect.Output }

// knowsClusters reports whether the server of a state directory has read its kubeconfig.
func knowsClusters(t *testing.T, s *state.Dir) bool {
	t.Helper()
	text, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path)
	return err == nil && strings.Contains(text, "/clusters/")
}

// printedKubeconfig returns the output of watershed kubeconfig.
func printedKubeconfig(t *testing.T, s *state.Dir) *clientcmdapi.Config {
	t.Helper()
	text, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path)
	if err != nil {
		t.Fatal(err)
	}
	k, err := clientcmd.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// startServe runs watershed serve for the duration of the test, and returns when it has
// read its clusters.
func startServe(t *testing.T, s *state.Dir, args ...string) (log *output, stop func() error) {
	t.Helper()
	log = &output{}
	cmd := newCommand()
	cmd.SetArgs(append([]string{"serve", "--state-dir", s.Path, "--listen", "127.0.0.1:0"}, args...))
	cmd.SetErr(log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	for {
		if knowsClusters(t, s) {
			return log, stop
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("serve ends with %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestServe_endsWithoutClusters has nothing to mirror: the command returns the reason at
// once.
func TestServe_endsWithoutClusters(t *testing.T) {
	config := commandtest.WriteKubeconfig(t, map[string]string{"prod-eu": "", "prod-us": ""})
	none := commandtest.WriteKubeconfig(t, nil)
	empty := filepath.Join(t.TempDir(), "empty")
	broken := filepath.Join(t.TempDir(), "broken")
	for path, content := range map[string]string{empty: "", broken: "users:\n- name: a\n  user: {token: *hunter2}\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{
			"no file",
			[]string{"--kubeconfig", "/nonexistent/config"},
			[]string{"kubeconfig /nonexistent/config does not exist"},
		},
		{
			"no context",
			[]string{"--kubeconfig", config, "--context", "prod-eu", "--context", "nosuch"},
			[]string{`context "nosuch"`, config, "prod-eu, prod-us"},
		},
		{"no contexts", []string{"--kubeconfig", none}, []string{none, "no contexts"}},
		{"empty file", []string{"--kubeconfig", empty}, []string{empty, "empty"}},
		{"not a kubeconfig", []string{"--kubeconfig", broken}, []string{broken, "cannot be parsed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := command(ctx, append([]string{
				"serve", "--state-dir", t.TempDir(), "--listen", "127.0.0.1:0",
			}, c.args...)...)
			if err == nil || ctx.Err() != nil || out != "" {
				t.Fatalf("serve ends with %v and prints %q, want an error and nothing", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error is %q, want one with %q", err, want)
				}
			}
		})
	}
	// The environment names the files if no flag does.
	t.Setenv("KUBECONFIG", "/nonexistent/a:/nonexistent/b")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := command(ctx, "serve", "--state-dir", t.TempDir(), "--listen", "127.0.0.1:0"); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/b") {
		t.Errorf("serve ends with %v, want an error with the files", err)
	}
}

// TestServe_ownsItsState checks that a second server with the same folder fails with the
// process of the first one in its error, and can start when that one has ended.
func TestServe_ownsItsState(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	config := commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	_, stop := startServe(t, s, "--kubeconfig", config)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := command(ctx, "serve", "--state-dir", s.Path, "--listen", "127.0.0.1:0", "--kubeconfig", config)
	for _, want := range []string{s.Path, "in use", fmt.Sprintf("pid %d", os.Getpid()), "--state-dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the second server ends with %v, want an error with %q", err, want)
		}
	}
	if text, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path); err != nil ||
		!strings.Contains(text, "/clusters/a") {
		t.Errorf("after that the first one's kubeconfig is %q, %v", text, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	_, stop = startServe(t, s, "--kubeconfig", config)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestServe_contextsKeepTheirNamespaces checks that the printed kubeconfig has the
// namespaces of the mirrored one, also after they have changed.
func TestServe_contextsKeepTheirNamespaces(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	config := commandtest.WriteKubeconfig(t, map[string]string{"eu/1": "shop", "us": ""})
	startServe(t, s, "--kubeconfig", config)
	namespace := func(k *clientcmdapi.Config, path string) string {
		t.Helper()
		for name, context := range k.Contexts {
			if server := k.Clusters[context.Cluster].Server; strings.HasSuffix(server, path) {
				if name == "eu/1" || name == "us" || name == "fleet" {
					t.Errorf("context %q would hide one of the user's own in a merged kubeconfig", name)
				}
				return context.Namespace
			}
		}
		t.Fatalf("no context for %s", path)
		return ""
	}
	k := printedKubeconfig(t, s)
	for path, want := range map[string]string{"/clusters/eu%252F1": "shop", "/clusters/us": "", "/fleet": ""} {
		if got := namespace(k, path); got != want {
			t.Errorf("the context of %s has namespace %q, want %q", path, got, want)
		}
	}
	changed, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, bytes.ReplaceAll(changed, []byte("namespace: shop"), []byte("namespace: bar")),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := namespace(printedKubeconfig(t, s), "/clusters/eu%252F1"); got != "bar" {
		t.Errorf("another namespace: %q, want bar", got)
	}
	// Without the file the contexts are printed without their namespaces.
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	if got := namespace(printedKubeconfig(t, s), "/clusters/eu%252F1"); got != "" {
		t.Errorf("without a kubeconfig: %q", got)
	}
}

// TestServe_silentConnections fills the server with silent connections: a client with a token is
// served at once, and keeps its connection while more of them come.
func TestServe_silentConnections(t *testing.T) {
	const limit = 20
	s := state.Dir{Path: t.TempDir()}
	startServe(t, &s, "--kubeconfig", commandtest.WriteKubeconfig(t, map[string]string{"a": ""}), "--max-connections",
		strconv.Itoa(limit))
	target, err := apiclient.LocalTarget(s, "")
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(target.Authority)
	client := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: time.Minute}
	}
	get := func(c *http.Client) (reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused },
		})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL+"/clusters", http.NoBody)
		expect.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+target.Owner)
		resp, err := c.Do(r)
		expect.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		expect.NoError(t, err)
		expect.Equal(t, resp.StatusCode, http.StatusOK)
		return reused
	}
	attack := func() {
		t.Helper()
		for range 3 * limit {
			c, err := net.Dial("tcp", strings.TrimPrefix(target.URL, "https://"))
			expect.NoError(t, err)
			t.Cleanup(func() { c.Close() })
		}
	}
	attack()
	first := client()
	get(first)
	attack()
	get(client()) // connections are accepted in their order, so all of the attack's have been
	if !get(first) {
		t.Error("silent connections have closed the connection of an authenticated client")
	}
}

// TestServe_kubeconfigVanishes removes the kubeconfig while it is mirrored: the clusters
// stay.
func TestServe_kubeconfigVanishes(t *testing.T) {
	s := state.Dir{Path: t.TempDir()}
	config := commandtest.WriteKubeconfig(t, map[string]string{"a": ""})
	log, stop := startServe(t, &s, "--kubeconfig", config)
	until := func(want string) {
		t.Helper()
		expect.Eventually(t, 30*time.Second, func() error {
			if !strings.Contains(log.String(), want) {
				return fmt.Errorf("no %q in the log:\n%s", want, log)
			}
			return nil
		})
	}
	until("msg=serving")
	if err := os.Rename(config, config+".away"); err != nil {
		t.Fatal(err)
	}
	until(`level=WARN msg="cannot read clusters; they stay as they are" source="kubeconfig ` + config)
	if text, err := command(t.Context(), "kubeconfig", "--state-dir", s.Path); err != nil ||
		!strings.Contains(text, "/clusters/a") {
		t.Errorf("the kubeconfig is then %q, %v", text, err)
	}
	if err := os.Rename(config+".away", config); err != nil {
		t.Fatal(err)
	}
	until(`level=INFO msg="clusters can be read again"`)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestServe_kubeconfigDir serves the clusters of a folder. A context of the same name
// that is not mirrored has no effect on the printed kubeconfig.
func TestServe_kubeconfigDir(t *testing.T) {
	t.Setenv("KUBECONFIG", commandtest.WriteKubeconfig(t, map[string]string{"a": "shop", "b": "shop", "c": "shop"}))
	dir := commandtest.WriteKubeconfigs(t, "a", "b")
	for _, c := range []struct {
		args []string
		want map[string]string // namespaces by cluster
	}{
		{[]string{"--kubeconfig-dir", dir}, map[string]string{"a": "", "b": ""}},
		{[]string{"--kubeconfig-dir", dir, "--context", "a"}, map[string]string{"a": "shop", "b": ""}},
	} {
		s := &state.Dir{Path: t.TempDir()}
		_, stop := startServe(t, s, c.args...)
		k := printedKubeconfig(t, s)
		got := map[string]string{}
		for _, context := range k.Contexts {
			if _, name, ok := strings.Cut(k.Clusters[context.Cluster].Server, "/clusters/"); ok {
				got[name] = context.Namespace
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%q: namespaces %v, want %v", c.args, got, c.want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
