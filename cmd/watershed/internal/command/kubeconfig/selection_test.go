// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// remote is a server elsewhere. It records the credentials of each request.
type remote struct {
	*httptest.Server
	ca string // a file with its certificate and a key

	mu       sync.Mutex
	requests map[string]string // credentials by path
}

// startRemote runs a server that answers with these statuses, by path, and with 401 else.
func startRemote(t *testing.T, statuses map[string]int) *remote {
	t.Helper()
	r := &remote{requests: map[string]string{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		credentials := req.Header.Get("Authorization")
		for _, c := range req.TLS.PeerCertificates {
			credentials += "certificate of " + c.Subject.CommonName
		}
		if user := req.Header.Get("Impersonate-User"); user != "" {
			credentials += " as " + user
		}
		r.mu.Lock()
		r.requests[req.URL.Path] = credentials
		r.mu.Unlock()
		status, ok := statuses[req.URL.Path]
		if !ok {
			status = http.StatusUnauthorized
		}
		if status == http.StatusFound {
			w.Header().Set("Location", "/stolen")
		}
		w.WriteHeader(status)
	}))
	r.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	r.StartTLS()
	t.Cleanup(r.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key of the authority")})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})...)
	r.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(r.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// seen returns the recorded credentials, and forgets them.
func (r *remote) seen() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.requests
	r.requests = map[string]string{}
	return seen
}

// writeCredentials writes a kubeconfig with contexts of the user that the test can
// authenticate with.
func writeCredentials(t *testing.T, change func(*clientcmdapi.Config)) (path string) {
	t.Helper()
	dir := t.TempDir()
	s := &state.Dir{Path: t.TempDir()}
	commandtest.OpenAuthority(t, s)
	pair, err := os.ReadFile(s.AuthorityFile()) // any certificate and its key
	if err != nil {
		t.Fatal(err)
	}
	plugin := `#!/bin/sh
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-%s"}}' "$PROFILE"
`
	for name, content := range map[string]string{"token": "of-file", "pair": string(pair), "plugin": plugin} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://api.example:6443", ProxyURL: "http://127.0.0.1:1"}
	k.CurrentContext = "plugin"
	for name, user := range map[string]*clientcmdapi.AuthInfo{
		"token":       {Token: "secret-1"},
		"token-file":  {TokenFile: "token"},
		"certificate": {ClientCertificate: "pair", ClientKey: "pair"},
		"plugin": {Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "./plugin",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			Env:             []clientcmdapi.ExecEnvVar{{Name: "PROFILE", Value: "plugin"}},
		}},
		"acting":   {Token: "secret-2", Impersonate: "jane"},
		"provider": {AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}},
		"absent":   {Token: "secret-3"},
		"missing":  {Token: "secret-4"},
		"denied":   {Token: "secret-5"},
		"down":     {Token: "secret-6"},
		"moved":    {Token: "secret-7"},
		"broken": {Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
			Command: "/nonexistent/plugin", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
	} {
		k.AuthInfos[name] = user
		k.Contexts[name] = &clientcmdapi.Context{Cluster: "c", AuthInfo: name, Namespace: "of-" + name}
	}
	if change != nil {
		change(k)
	}
	path = filepath.Join(dir, "config")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRemote_checksContexts checks that each context asks the server with its own
// credentials, and which answers leave it out.
func TestRemote_checksContexts(t *testing.T) {
	r := startRemote(t, map[string]int{
		"/clusters/eu-1/version": 200, "/clusters/token-file/version": 200, "/clusters/certificate/version": 200,
		"/clusters/plugin/version": 200, "/clusters/acting/version": 200, "/clusters/missing/version": 404,
		"/clusters/denied/version": 403, "/clusters/down/version": 503, "/clusters/moved/version": 302,
		"/fleet/version": 200,
	})
	path := writeCredentials(t, func(k *clientcmdapi.Config) {
		// A context of an earlier run is not a context of the user.
		k.Clusters["earlier"] = &clientcmdapi.Cluster{Server: r.URL + "/clusters/plugin"}
		k.Contexts["earlier"] = &clientcmdapi.Context{Cluster: "earlier", AuthInfo: "plugin"}
	})
	text, trouble, err := run(t, "--server", r.URL+"/", "--certificate-authority", r.ca, "--kubeconfig", path,
		"--map", "token=eu-1", "--context", "acting")
	if err != nil {
		t.Fatal(err)
	}
	seen := r.seen()
	delete(seen, "/livez")
	if diff := cmp.Diff(map[string]string{
		"/clusters/eu-1/version": "Bearer secret-1", "/clusters/token-file/version": "Bearer of-file",
		"/clusters/certificate/version": "certificate of watershed authority",
		"/clusters/plugin/version":      "Bearer of-plugin",
		"/clusters/acting/version":      "Bearer secret-2 as jane", "/clusters/absent/version": "Bearer secret-3",
		"/clusters/missing/version": "Bearer secret-4", "/clusters/denied/version": "Bearer secret-5",
		"/clusters/down/version": "Bearer secret-6", "/clusters/moved/version": "Bearer secret-7",
		"/fleet/version": "Bearer secret-2 as jane",
	}, seen); diff != "" {
		t.Errorf("requests, wanted (-) and received (+):\n%s", diff)
	}
	k := load(t, text)
	want := []string{"acting", "certificate", "denied", "down", "fleet", "moved", "plugin", "provider", "token",
		"token-file"}
	for i := range want {
		want[i] = defaultPrefix + want[i]
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(k.Contexts))); diff != "" {
		t.Errorf("contexts, wanted (-) and printed (+):\n%s", diff)
	}
	for _, part := range []string{`context "absent" is left out`, `context "missing" is left out`,
		`context "broken" is left out`, `context "provider" is not checked`} {
		if !strings.Contains(trouble, part) {
			t.Errorf("stderr is without %q:\n%s", part, trouble)
		}
	}
	if strings.Contains(trouble, "secret-") || strings.Count(trouble, "\n") != 4 {
		t.Errorf("stderr:\n%s", trouble)
	}
	cluster, context := k.Clusters["watershed-token"], k.Contexts["watershed-token"]
	if cluster.Server != r.URL+"/clusters/eu-1" || cluster.ProxyURL != "" || context.Namespace != "of-token" {
		t.Errorf("%+v, %+v", cluster, context)
	}
	if block, rest := pem.Decode(cluster.CertificateAuthorityData); !bytes.Equal(block.Bytes, r.Certificate().Raw) ||
		len(rest) > 0 {
		t.Error("the authority in the kubeconfig is not only the certificate of the server")
	}
	if k.CurrentContext != "watershed-fleet" {
		t.Errorf("the current context is %s", k.CurrentContext)
	}
}

// TestRemote_ofAnEarlierRun selects the server by the context that an earlier run has written. The
// names of that run do not get the prefix a second time.
func TestRemote_ofAnEarlierRun(t *testing.T) {
	r := startRemote(t, map[string]int{"/clusters/acting/version": 200, "/clusters/token/version": 200,
		"/fleet/version": 200})
	path := writeCredentials(t, nil)
	names := func(args ...string) (contexts, users []string) {
		t.Helper()
		if _, trouble, err := run(t, append(args, "--kubeconfig", path, "--merge", "--write", path)...); err != nil {
			t.Fatalf("%v, %s", err, trouble)
		}
		k, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(k.Contexts)), slices.Sorted(maps.Keys(k.AuthInfos))
	}
	contexts, users := names("acting", "token", "--server", r.URL, "--certificate-authority", r.ca,
		"--context", "acting")
	if !slices.Contains(contexts, "watershed-fleet") || !slices.Contains(users, "watershed-acting") {
		t.Fatalf("contexts %q, users %q", contexts, users)
	}
	for range 2 {
		again, usersAgain := names("acting", "token", "--context", "watershed-fleet")
		if !slices.Equal(again, contexts) || !slices.Equal(usersAgain, users) {
			t.Errorf("again: contexts %q, users %q; want %q and %q", again, usersAgain, contexts, users)
		}
	}
	// The user's token was replaced. The context of the fleet keeps the credential that it has.
	k, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k.AuthInfos["acting"].Token = "secret-new"
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	names("acting", "token", "--context", "watershed-fleet")
	if k, err = clientcmd.LoadFromFile(path); err != nil {
		t.Fatal(err)
	}
	for context, want := range map[string]string{"watershed-acting": "secret-new", "watershed-fleet": "secret-2"} {
		if got := k.AuthInfos[k.Contexts[context].AuthInfo].Token; got != want {
			t.Errorf("context %s has the token %q, want %q", context, got, want)
		}
	}
}

// TestRemote_offline does not connect to the server. Without a home cluster there is no
// fleet, and the user's current context stays current.
func TestRemote_offline(t *testing.T) {
	path := writeCredentials(t, nil)
	text, trouble, err := run(t, "--server", "https://127.0.0.1:1", "--kubeconfig", path, "--offline")
	if err != nil {
		t.Fatal(err)
	}
	k := load(t, text)
	if len(k.Contexts) != 12 || k.CurrentContext != "watershed-plugin" ||
		k.Clusters["watershed-plugin"].CertificateAuthorityData != nil {
		t.Errorf("%d contexts, the current one is %q", len(k.Contexts), k.CurrentContext)
	}
	if !strings.Contains(trouble, `context "fleet" is left out`) || !strings.Contains(trouble, "--context") {
		t.Errorf("stderr:\n%s", trouble)
	}
}

// TestRemote_sendsNothingToAStranger checks that no credentials are sent to a server that
// the authority does not verify.
func TestRemote_sendsNothingToAStranger(t *testing.T) {
	expected, stranger := startRemote(t, nil), startRemote(t, nil)
	ca, _ := commandtest.OpenAuthority(t, &state.Dir{Path: t.TempDir()})
	other := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(other, ca.Bundle(), 0o600); err != nil {
		t.Fatal(err)
	}
	path := writeCredentials(t, nil)
	out, _, err := run(t, "--server", stranger.URL, "--certificate-authority", other, "--kubeconfig", path)
	if err == nil || !strings.Contains(err.Error(), "certificate") || out != "" || len(stranger.seen()) > 0 {
		t.Errorf("output %q, error %v", out, err)
	}
	// A server that accepts no context leaves nothing to print or write.
	file := filepath.Join(t.TempDir(), "replica.yaml")
	out, _, err = run(t, "--server", expected.URL, "--certificate-authority", expected.ca, "--kubeconfig", path,
		"token", "--write", file)
	if err == nil || !strings.Contains(err.Error(), "no context") || out != "" {
		t.Errorf("output %q, error %v", out, err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

func TestKubeconfig_refusesFlags(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	_, end := commandtest.Begin(t, s, commandtest.Clusters("eu"))
	path := commandtest.WriteUserConfig(t)
	notPEM := filepath.Join(t.TempDir(), "ca")
	if err := os.WriteFile(notPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--state-dir DIR --credentials none", "use owner or user"},
		{"--state-dir DIR eu", "--credentials user"},
		{"--state-dir DIR --context eu", "--credentials user"},
		{"--state-dir DIR --offline", "--credentials user"},
		{"--state-dir DIR --credentials user --kubeconfig PATH nosuch", `context "nosuch" does not exist`},
		{"--state-dir DIR --credentials user --kubeconfig PATH --context nosuch", `context "nosuch" does not exist`},
		{"--state-dir DIR --credentials user --kubeconfig PATH --map eu", "CONTEXT=NAME"},
		{"--state-dir DIR --credentials user --kubeconfig /nonexistent/config", "/nonexistent/config does not exist"},
		{"--state-dir DIR --server https://a.example", "--state-dir has no effect"},
		{"--server https://a.example --credentials owner", "no owner"},
		{"--server http://a.example", "https"},
		{"--server a.example:7443", "https"},
		{"--server https://user:hunter2@a.example", "password"},
		{"--server https://a.example:hunter2", "not a valid URL"},
		{"--server https://a.example/?token=hunter2", "query"},
		{"--server https://a.example --certificate-authority /nonexistent/ca", "/nonexistent/ca"},
		{"--server https://a.example --certificate-authority NOTPEM", "no certificates"},
	} {
		args := strings.Fields(strings.NewReplacer("DIR", s.Path, "PATH", path, "NOTPEM", notPEM).Replace(c.args))
		out, _, err := run(t, args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") ||
			out != "" {
			t.Errorf("%s: output %q, error %v, want one with %q", c.args, out, err, c.want)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestKubeconfig_withoutAnOwner checks that a server on an address of a network has contexts
// with the user's credentials, even if the folder has a token of an owner.
func TestKubeconfig_withoutAnOwner(t *testing.T) {
	s := &state.Dir{Path: t.TempDir()}
	commandtest.OpenAuthority(t, s)
	commandtest.OwnerToken(t, s)
	for _, announced := range []state.Server{
		{Address: "192.0.2.1:7443", Home: "token"},
		{Address: "replica.example:7443", Home: "token", OtherAuthority: true},
	} {
		withdraw, err := s.Announce(announced)
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := run(t, "--state-dir", s.Path, "--kubeconfig", commandtest.WriteUserConfig(t), "--offline")
		withdraw()
		if err != nil {
			t.Fatal(err)
		}
		k := load(t, text)
		if k.Contexts["watershed-fleet"].AuthInfo != "watershed-token" ||
			strings.Contains(text, commandtest.OwnerToken(t, s)) {
			t.Errorf("%s:\n%s", announced.Address, text)
		}
		cluster := k.Clusters["watershed-data"]
		if cluster.Server != fmt.Sprintf("https://%s/clusters/data", announced.Address) ||
			(cluster.CertificateAuthorityData == nil) != announced.OtherAuthority {
			t.Errorf("%s: %+v", announced.Address, cluster)
		}
	}
}
