// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubeconfig

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/apiclient"
	"github.com/watershed-project/watershed/cmd/watershed/internal/commandtest"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
)

// load parses a kubeconfig.
func load(t *testing.T, text string) *clientcmdapi.Config {
	t.Helper()
	k, err := clientcmd.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// execExtension is the extension of a cluster's entry that configures credential plugins.
const execExtension = "client.authentication.k8s.io/exec"

// withoutOrigin ignores the file that an entry comes from.
var withoutOrigin = cmp.Options{
	cmpopts.IgnoreFields(clientcmdapi.AuthInfo{}, "LocationOfOrigin"), cmpopts.EquateEmpty(),
}

// TestCredentials_everyKind checks that a context keeps the credentials that clientcmd loads
// from the user's kubeconfig, and nothing of the connection.
func TestCredentials_everyKind(t *testing.T) {
	path := commandtest.WriteUserConfig(t)
	original, err := (&clientcmd.ClientConfigLoadingRules{Precedence: []string{path}}).Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &state.Dir{Path: t.TempDir()}
	names := slices.Sorted(maps.Keys(original.Contexts))
	address, end := commandtest.BeginAs(t, s, state.Server{Kubeconfig: []string{path}},
		commandtest.Clusters(append(names, "elsewhere")...))
	text, trouble, err := run(t, "--state-dir", s.Path, "--credentials", "user")
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
		if diff := cmp.Diff(original.AuthInfos[original.Contexts[name].AuthInfo], k.AuthInfos[context.AuthInfo],
			withoutOrigin); diff != "" {
			t.Errorf("credentials of %q, wanted (-) and printed (+):\n%s", name, diff)
		}
		if context.Namespace != original.Contexts[name].Namespace {
			t.Errorf("context %q has namespace %q", name, context.Namespace)
		}
		cluster := k.Clusters[context.Cluster]
		if cluster.Server != "https://"+address+"/clusters/"+name || cluster.InsecureSkipTLSVerify ||
			cluster.TLSServerName != "" || cluster.ProxyURL != "" || len(cluster.CertificateAuthorityData) == 0 {
			t.Errorf("cluster of %q: %+v", name, cluster)
		}
		plugin := original.AuthInfos[original.Contexts[name].AuthInfo].Exec != nil
		wanted := original.Clusters["shared"].Extensions[execExtension]
		if got := cluster.Extensions[execExtension]; plugin != (got != nil) || plugin && !cmp.Equal(got, wanted) ||
			cluster.Extensions["minikube"] != nil {
			t.Errorf("extensions of the cluster of %q: %v", name, cluster.Extensions)
		}
	}
	certificate := k.AuthInfos["watershed-files"].ClientCertificate
	if want := filepath.Join(filepath.Dir(path), "pki/me.crt"); certificate != want {
		t.Errorf("path of the certificate: %s, want %s", certificate, want)
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
	mine, err := apiclient.ReadUserKubeconfig([]string{commandtest.WriteUserConfig(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mine.Credential("plugin")
	if err != nil {
		t.Fatal(err)
	}
	contexts := []replicaContext{{"plugin", "eu", "", c, false}}
	k := newKubeconfig(&apiclient.Target{URL: "https://replica.example"}, "", contexts,
		"")
	text, err := encodeKubeconfig(k)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*load(t, string(text)), "plugin", nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	before, err := clientcmd.NewNonInteractiveClientConfig(*mine.Config, "plugin", nil, nil).ClientConfig()
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
	path := commandtest.WriteUserConfig(t)
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
		s := &state.Dir{Path: t.TempDir()}
		_, end := commandtest.BeginAs(t, s, state.Server{Kubeconfig: []string{path}, Home: c.home},
			commandtest.Clusters("token", "acting", "unknown"))
		args := []string{"--state-dir", s.Path, "--credentials", "user"}
		if c.flag != "" {
			args = append(args, "--context", c.flag)
		}
		text, _, err := run(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		k := load(t, text)
		if fleet := k.Contexts["watershed-fleet"]; fleet == nil || fleet.AuthInfo != c.user ||
			k.AuthInfos[c.user] == nil {
			t.Errorf("home %q, --context %q: the context of the fleet is %+v, want user %s", c.home, c.flag, fleet,
				c.user)
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
	path := commandtest.WriteUserConfig(t)
	s := &state.Dir{Path: t.TempDir()}
	_, end := commandtest.BeginAs(t, s, state.Server{}, commandtest.Clusters("token", "eu.prod", "acting"))
	text, trouble, err := run(t, "--state-dir", s.Path, "--credentials", "user", "--kubeconfig", path,
		"token", "data", "--map", "data=eu.prod", "--prefix", "r/")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{}
	for name, cluster := range load(t, text).Clusters {
		servers[name] = cluster.Server[strings.Index(cluster.Server, "/clusters/")+1:]
	}
	delete(servers, "r/fleet")
	if diff := cmp.Diff(map[string]string{"r/token": "clusters/token", "r/data": "clusters/eu.prod"},
		servers); diff != "" {
		t.Errorf("wanted (-) and printed (+):\n%s", diff)
	}
	if !strings.Contains(trouble, `cluster "acting" is left out`) {
		t.Errorf("stderr:\n%s", trouble)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
