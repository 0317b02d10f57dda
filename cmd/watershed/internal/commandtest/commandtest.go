// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package commandtest has what tests of several commands need: runs of a command in this process, a
// small server with a state directory, and kubeconfigs.
package commandtest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/serving"
	"github.com/watershed-project/watershed/cmd/watershed/internal/settings"
	"github.com/watershed-project/watershed/cmd/watershed/internal/state"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
)

// Run runs a command in this process, and returns both of its outputs.
func Run(ctx context.Context, cmd *cobra.Command, args ...string) (out, trouble string, err error) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = cmd.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}

// WriteFleetContext writes a file with the context fleet, for an address.
func WriteFleetContext(t *testing.T, address string) (path string) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["fleet"] = &clientcmdapi.Cluster{Server: address}
	k.AuthInfos["fleet"] = &clientcmdapi.AuthInfo{Token: "secret"}
	k.Contexts["fleet"] = &clientcmdapi.Context{Cluster: "fleet", AuthInfo: "fleet"}
	path = filepath.Join(t.TempDir(), "config")
	expect.NoError(t, clientcmd.WriteToFile(*k, path))
	return path
}

// WriteKubeconfig writes a file with contexts, each with its namespace and a cluster that
// does not respond.
func WriteKubeconfig(t *testing.T, namespaces map[string]string) (path string) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	for name, namespace := range namespaces {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "secret of " + name}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	}
	path = filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteConfigs writes a kubeconfig file with a context for each configuration.
func WriteConfigs(t *testing.T, path string, configs map[string]*rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	for name, c := range configs {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData,
			TLSServerName: c.ServerName}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.BearerToken, ClientCertificate: c.CertFile,
			ClientKey: c.KeyFile, ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		k.CurrentContext = name
	}
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// UserConfig is a kubeconfig with every kind of credentials, one context for each.
const UserConfig = `
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

// WriteUserConfig writes a kubeconfig with every kind of credentials.
func WriteUserConfig(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(UserConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// OpenAuthority opens a state directory and its authority.
func OpenAuthority(t *testing.T, s *state.Dir) (ca *serving.Authority, created bool) {
	t.Helper()
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	ca, created, err := serving.OpenAuthority(s.AuthorityFile(),
		&serving.AuthorityOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return ca, created
}

// Begin runs a service like serve, with another handler. It returns a function that ends
// it and waits.
func Begin(t *testing.T, s *state.Dir, handler http.Handler) (address string, end func() error) {
	t.Helper()
	return BeginAs(t, s, state.Server{}, handler)
}

// BeginAs is like begin, for a server that announces more than its address. Its list of
// clusters is for the owner only.
func BeginAs(
	t *testing.T, s *state.Dir, announced state.Server, handler http.Handler,
) (address string, end func() error) {
	t.Helper()
	ca, _ := OpenAuthority(t, s)
	handler = ownerOnly(OwnerToken(t, s), handler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	announced.Address = l.Addr().String()
	withdraw, err := s.Announce(announced)
	if err != nil {
		t.Fatal(err)
	}
	front, err := serving.New(l, handler, &serving.Options{Certificates: ca, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := front.Run(ctx)
		withdraw()
		done <- err
	}()
	return l.Addr().String(), func() error {
		cancel()
		return <-done
	}
}

// OwnerToken returns the owner's token of a state directory, and creates it if necessary.
func OwnerToken(t *testing.T, s *state.Dir) string {
	t.Helper()
	err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.OpenOwner(access.NewOwnerToken)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// ownerOnly refuses requests for the list of clusters without the owner's token.
func ownerOnly(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/clusters" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Clusters returns a handler that responds like the replica.
func Clusters(names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/clusters" {
			http.NotFound(w, r)
			return
		}
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(`{"name":%q,"state":"Synced"}`, name))
		}
		fmt.Fprintf(w, `{"clusters":[%s]}`, strings.Join(all, ","))
	})
}

// ParseOptions returns the options of serve with these flags.
func ParseOptions(args ...string) (*settings.Settings, error) {
	o := settings.New()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return o, o.Load()
}

// OpenSources opens the sources of these flags. They log to the returned output.
func OpenSources(t *testing.T, args ...string) (*settings.OpenedSources, *expect.Output, error) {
	t.Helper()
	log := &expect.Output{}
	o, err := ParseOptions(args...)
	if err != nil {
		return nil, log, err
	}
	s, err := o.Sources.Open(slog.New(slog.NewTextHandler(log, nil)))
	return s, log, err
}

// FollowSources follows the sources of these flags until their clusters are as wanted,
// and returns them by name.
func FollowSources(
	t *testing.T, wanted func(map[string]fleet.Entry) bool, args ...string,
) (map[string]fleet.Entry, *expect.Output) {
	t.Helper()
	s, log, err := OpenSources(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	last := map[string]fleet.Entry{}
	found := false
	err = s.Join(slog.New(slog.NewTextHandler(log, nil))).Follow(ctx, func(entries []fleet.Entry) {
		if found {
			return
		}
		clear(last)
		for _, e := range entries {
			last[e.Name] = e
		}
		if found = wanted(last); found {
			cancel()
		}
	})
	if err != nil || !found {
		t.Fatalf("%q: error %v, clusters %v, log:\n%s", args, err, slices.Sorted(maps.Keys(last)), log)
	}
	return last, log
}

// Named returns a condition for FollowSources: the clusters have these names.
func Named(names ...string) func(map[string]fleet.Entry) bool {
	return func(m map[string]fleet.Entry) bool { return slices.Equal(slices.Sorted(maps.Keys(m)), names) }
}

// WriteKubeconfigs returns a directory with a kubeconfig file for each of these clusters.
func WriteKubeconfigs(t *testing.T, clusters ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range clusters {
		if err := os.Rename(WriteKubeconfig(t, map[string]string{"only": ""}),
			filepath.Join(dir, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
