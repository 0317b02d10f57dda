// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// userConfig is a kubeconfig with every kind of credentials, one context for each.
const userConfig = `
apiVersion: v1
kind: Config
current-context: token
clusters:
- name: shared
  cluster:
    server: https://api.example:6443
    insecure-skip-tls-verify: true
    tls-server-name: other.example
    proxy-url: http://proxy.example:3128
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {audience: shared-audience}
    - name: minikube
      extension: {version: v1}
contexts:
- {name: token, context: {cluster: shared, user: token, namespace: shop}}
- {name: again, context: {cluster: shared, user: token}}
- {name: token-file, context: {cluster: shared, user: token-file}}
- {name: files, context: {cluster: shared, user: files}}
- {name: data, context: {cluster: shared, user: data}}
- {name: plugin, context: {cluster: shared, user: plugin}}
- {name: oidc, context: {cluster: shared, user: oidc}}
- {name: provider, context: {cluster: shared, user: provider}}
- {name: acting, context: {cluster: shared, user: acting}}
- {name: fleet, context: {cluster: shared, user: owner}}
- {name: anonymous, context: {cluster: shared, user: anonymous}}
- {name: dangling, context: {cluster: shared, user: nosuch}}
users:
- {name: token, user: {token: secret-1}}
- {name: token-file, user: {tokenFile: secrets/token}}
- {name: files, user: {client-certificate: pki/me.crt, client-key: /pki/me.key}}
- {name: data, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/plugin
      args: [--cluster, eu]
      env: [{name: PROFILE, value: prod}]
      installHint: brew install plugin
      provideClusterInfo: true
      interactiveMode: IfAvailable
- name: oidc
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: kubectl
      args: [oidc-login, get-token, --oidc-issuer-url=https://issuer.example]
- {name: provider, user: {auth-provider: {name: oidc, config: {id-token: secret-2, refresh-token: secret-3}}}}
- name: acting
  user:
    token: secret-4
    as: jane
    as-uid: "7"
    as-groups: [dev]
    as-user-extra: {scope: [a, b]}
- {name: owner, user: {token: secret-5}}
- {name: anonymous, user: {username: u, password: p}}
`

// writeUserConfig writes a kubeconfig with every kind of credentials.
func writeUserConfig(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(userConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// commandParts runs the program in this process, and returns both of its outputs.
func commandParts(t *testing.T, args ...string) (out, trouble string, err error) {
	t.Helper()
	cmd := newCommand()
	cmd.SetArgs(args)
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// load parses a kubeconfig.
func load(t *testing.T, text string) *clientcmdapi.Config {
	t.Helper()
	k, err := clientcmd.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// withoutOrigin ignores the file that an entry comes from.
var withoutOrigin = cmp.Options{
	cmpopts.IgnoreFields(clientcmdapi.AuthInfo{}, "LocationOfOrigin"), cmpopts.EquateEmpty(),
}

// TestCredentials_everyKind checks that a context keeps the credentials that clientcmd loads
// from the user's kubeconfig, and nothing of the connection.
func TestCredentials_everyKind(t *testing.T) {
	path := writeUserConfig(t)
	original, err := (&clientcmd.ClientConfigLoadingRules{Precedence: []string{path}}).Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &state{dir: t.TempDir()}
	names := slices.Sorted(maps.Keys(original.Contexts))
	address, end := beginAs(t, s, server{Kubeconfig: []string{path}}, clusters(append(names, "elsewhere")...))
	text, trouble, err := commandParts(t, "kubeconfig", "--state-dir", s.dir, "--credentials", "user")
	if err != nil {
		t.Fatal(err)
	}
	k := load(t, text)
	for _, name := range names {
		context := k.Contexts["watershed-"+name]
		if name == "anonymous" || name == "dangling" {
			if context != nil || !strings.Contains(trouble, `context "`+name+`" is left out: its user`) {
				t.Errorf("context %q is not left out; stderr:\n%s", name, trouble)
			}
			continue
		}
		if name == "fleet" {
			context = k.Contexts["watershed-clusters/fleet"]
		}
		if context == nil {
			t.Errorf("no context for %q", name)
			continue
		}
		if diff := cmp.Diff(original.AuthInfos[original.Contexts[name].AuthInfo], k.AuthInfos[context.AuthInfo], withoutOrigin); diff != "" {
			t.Errorf("credentials of %q, wanted (-) and printed (+):\n%s", name, diff)
		}
		if context.Namespace != original.Contexts[name].Namespace {
			t.Errorf("context %q has namespace %q", name, context.Namespace)
		}
		cluster := k.Clusters[context.Cluster]
		if cluster.Server != "https://"+address+"/clusters/"+name || cluster.InsecureSkipTLSVerify || cluster.TLSServerName != "" || cluster.ProxyURL != "" || len(cluster.CertificateAuthorityData) == 0 {
			t.Errorf("cluster of %q: %+v", name, cluster)
		}
		plugin := original.AuthInfos[original.Contexts[name].AuthInfo].Exec != nil
		wanted := original.Clusters["shared"].Extensions[pluginExtension]
		if got := cluster.Extensions[pluginExtension]; plugin != (got != nil) || plugin && !cmp.Equal(got, wanted) || cluster.Extensions["minikube"] != nil {
			t.Errorf("extensions of the cluster of %q: %v", name, cluster.Extensions)
		}
	}
	if want := filepath.Join(filepath.Dir(path), "pki/me.crt"); k.AuthInfos["watershed-files"].ClientCertificate != want {
		t.Errorf("path of the certificate: %s, want %s", k.AuthInfos["watershed-files"].ClientCertificate, want)
	}
	if !strings.Contains(trouble, `cluster "elsewhere" is left out`) || k.Contexts["watershed-elsewhere"] != nil {
		t.Errorf("stderr does not report the cluster without a context:\n%s", trouble)
	}
	if strings.Contains(trouble, "secret-") {
		t.Errorf("a secret on stderr:\n%s", trouble)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestCredentials_pluginReceivesItsConfiguration checks what client-go would pass to the
// plugin of a printed context.
func TestCredentials_pluginReceivesItsConfiguration(t *testing.T) {
	mine, err := readUserKubeconfig([]string{writeUserConfig(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mine.credential("plugin")
	if err != nil {
		t.Fatal(err)
	}
	k := newKubeconfig(&target{url: "https://replica.example"}, "", []replicaContext{{"plugin", "eu", "", c}}, "")
	text, err := encodeKubeconfig(k)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*load(t, string(text)), "plugin", nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	before, err := clientcmd.NewNonInteractiveClientConfig(*mine.config, "plugin", nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if before.ExecProvider.Config == nil || !cmp.Equal(before.ExecProvider, cfg.ExecProvider, cmpopts.EquateEmpty()) {
		t.Errorf("the plugin was called as\n%+v\nand is now\n%+v", before.ExecProvider, cfg.ExecProvider)
	}
	if !filepath.IsAbs(cfg.ExecProvider.Command) {
		t.Errorf("the command is %s", cfg.ExecProvider.Command)
	}
}

// TestCredentials_ofTheFleet checks which credentials the context of the fleet has.
func TestCredentials_ofTheFleet(t *testing.T) {
	path := writeUserConfig(t)
	for _, c := range []struct {
		home, flag string
		user       string
	}{
		{"", "", "watershed-owner"},
		{"acting", "", "watershed-acting"},
		{"acting", "plugin", "watershed-plugin"},
		{"", "fleet", "watershed-users/owner"},
		{"data", "", "watershed-owner"},    // a certificate is not accepted
		{"unknown", "", "watershed-owner"}, // no context for the home cluster
		{"dangling", "", "watershed-owner"},
	} {
		s := &state{dir: t.TempDir()}
		_, end := beginAs(t, s, server{Kubeconfig: []string{path}, Home: c.home}, clusters("token", "acting", "unknown"))
		args := []string{"kubeconfig", "--state-dir", s.dir, "--credentials", "user"}
		if c.flag != "" {
			args = append(args, "--home", c.flag)
		}
		text, _, err := commandParts(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		k := load(t, text)
		if fleet := k.Contexts["watershed-fleet"]; fleet == nil || fleet.AuthInfo != c.user || k.AuthInfos[c.user] == nil {
			t.Errorf("home %q, --home %q: the context of the fleet is %+v, want user %s", c.home, c.flag, fleet, c.user)
		}
		if k.AuthInfos["watershed-owner"] != nil && c.user != "watershed-owner" {
			t.Errorf("home %q: the owner's token is in the output without need", c.home)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// TestCredentials_selected limits the contexts, and maps one to another cluster.
func TestCredentials_selected(t *testing.T) {
	path := writeUserConfig(t)
	s := &state{dir: t.TempDir()}
	_, end := beginAs(t, s, server{}, clusters("token", "eu.prod", "acting"))
	text, trouble, err := commandParts(t, "kubeconfig", "--state-dir", s.dir, "--credentials", "user", "--kubeconfig", path,
		"--context", "token", "--context", "data", "--cluster", "data=eu.prod", "--prefix", "r/")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{}
	for name, cluster := range load(t, text).Clusters {
		servers[name] = cluster.Server[strings.Index(cluster.Server, "/clusters/")+1:]
	}
	delete(servers, "r/fleet")
	if diff := cmp.Diff(map[string]string{"r/token": "clusters/token", "r/data": "clusters/eu.prod"}, servers); diff != "" {
		t.Errorf("wanted (-) and printed (+):\n%s", diff)
	}
	if !strings.Contains(trouble, `cluster "acting" is left out`) {
		t.Errorf("stderr:\n%s", trouble)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
