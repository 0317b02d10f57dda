// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
)

func newKubeconfig(log *logBuffer, paths ...string) *directory.Kubeconfig {
	return directory.Poll(directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: paths, Logger: log.logger()}),
		testInterval)
}

func TestKubeconfig_names(t *testing.T) {
	names := map[string]string{
		"arn:aws:eks:eu-west-1:1234:cluster/prod": "arn:aws:eks:eu-west-1:1234:cluster%2Fprod",
		"gke_project_europe-west1_prod":           "gke_project_europe-west1_prod",
		"default/api-crc-testing:6443/kube:admin": "default%2Fapi-crc-testing:6443%2Fkube:admin",
		"kind-kind": "kind-kind",
		"arn:aws:eks:eu-west-1:1234:cluster%2Fprod": "arn:aws:eks:eu-west-1:1234:cluster%252Fprod",
		"%":           "%25",
		"":            "%",
		".":           "%2E",
		"..":          "%2E%2E",
		"a\tb\u202e":  "a%09b%E2%80%AE",
		"user@host b": "user@host b",
		"Zürich":      "Zürich",
	}
	var contexts, clusters []string
	for context, cluster := range names {
		contexts, clusters = append(contexts, context), append(clusters, cluster)
	}
	path := write(t, kubeconfigWith(nil, contexts...), t.TempDir(), "config")
	got := follow(t, newKubeconfig(&logBuffer{}, path)).names(clusters...)
	for context, cluster := range names {
		if e := got[cluster]; e.Err != nil || e.Config.BearerToken != "token-of-"+context {
			t.Errorf("context %q: %v", context, e.Err)
		}
	}
}

// TestKubeconfig_longName leaves out a context whose name is too long.
func TestKubeconfig_longName(t *testing.T) {
	log := &logBuffer{}
	path := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Contexts[strings.Repeat("/", 171)] = k.Contexts["a"].DeepCopy()
	}, "a"), t.TempDir(), "config")
	follow(t, newKubeconfig(log, path)).names("a")
	if !strings.Contains(log.String(), "has 513 bytes") {
		t.Errorf("logged:\n%s", log.String())
	}
}

// TestKubeconfig_incomplete writes the first part of a file, which is valid YAML: its clusters
// stay. A file without any context has none.
func TestKubeconfig_incomplete(t *testing.T) {
	dir := t.TempDir()
	whole := kubeconfigWith(nil, "a", "b")
	path := write(t, whole, dir, "config")
	k := newKubeconfig(&logBuffer{}, path)
	seen := follow(t, k)
	seen.names("a", "b")
	write(t, whole[:bytes.Index(whole, []byte("\ncontexts:"))], dir, "config")
	expect.Soon(t, "the error", func() bool {
		return k.Err() != nil && strings.Contains(k.Err().Error(), "not complete")
	})
	if n := seen.count(); n != 1 {
		t.Errorf("%d reports: %v", n, describe(seen.last()))
	}
	write(t, kubeconfigWith(nil), dir, "config")
	seen.names()
	expect.NoError(t, k.Err())
}

func TestKubeconfig_sameServerTwice(t *testing.T) {
	path := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Contexts["b"] = k.Contexts["a"].DeepCopy()
	}, "a"), t.TempDir(), "config")
	got := follow(t, newKubeconfig(&logBuffer{}, path)).names("a", "b")
	if got["a"].Access != got["b"].Access {
		t.Error("the same access has two digests")
	}
}

func TestKubeconfig_default(t *testing.T) {
	dir := t.TempDir()
	first := write(t, kubeconfigWith(nil, "a", "both"), dir, "first")
	second := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.AuthInfos["both"].Token = "another"
	}, "b", "both"), dir, "second")
	t.Setenv("KUBECONFIG", strings.Join([]string{filepath.Join(dir, "none"), first, second},
		string(os.PathListSeparator)))
	got := follow(t, directory.NewKubeconfig(nil)).names("a", "b", "both")
	kubectl, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	must(t, err)
	for name := range kubectl.Contexts {
		if got[name].Config.BearerToken != kubectl.AuthInfos[name].Token {
			t.Errorf("%s: not the credentials that kubectl would use", name)
		}
	}
}

func TestKubeconfig_chosen(t *testing.T) {
	path := write(t, kubeconfigWith(nil, "a", "b", "c"), t.TempDir(), "config")
	seen := follow(t, directory.Poll(directory.NewKubeconfig(&directory.KubeconfigOptions{
		Paths:    []string{path},
		Contexts: []string{"c", "none", "a", "c"},
	}), testInterval))
	got := seen.names("a", "c", "none")
	if err := got["none"].Err; err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("a context that is not there: %v", err)
	}
	replace(t, kubeconfigWith(nil, "a", "b", "c", "none"), path)
	seen.until("it is there", func(m map[string]fleet.Entry) bool { return m["none"].Err == nil })
}

func TestKubeconfig_follow(t *testing.T) {
	var log logBuffer
	dir := t.TempDir()
	one := filepath.Join(dir, "one")
	two := write(t, kubeconfigWith(nil, "c"), dir, "two")
	seen := follow(t, newKubeconfig(&log, one, two))
	seen.names("c")
	write(t, kubeconfigWith(nil, "a", "b"), one)
	before := seen.names("a", "b", "c")

	write(t, kubeconfigWith(nil, "a", "b"), one)
	seen.quiet("the same was written again")

	replace(t, kubeconfigWith(func(k *clientcmdapi.Config) { k.AuthInfos["a"].Token = "another" }, "a", "b"), one)
	after := seen.until("another token", func(m map[string]fleet.Entry) bool {
		return m["a"].Access != before["a"].Access
	})
	if after["b"].Access != before["b"].Access || after["a"].Config.BearerToken != "another" {
		t.Errorf("another token: %v", describe(after))
	}

	write(t, []byte("apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {token: *top-secret}\n"), one)
	log.has(t, "cannot be parsed")
	seen.quiet("it cannot be parsed")
	if n := strings.Count(log.String(), "cannot be parsed"); n != 1 || strings.Contains(log.String(), "top-secret") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	write(t, kubeconfigWith(nil, "a"), one)
	seen.names("a", "c")

	must(t, os.Remove(two))
	seen.names("a")
	write(t, nil, one)
	seen.quiet("it is empty")
	must(t, os.Remove(one))
	log.has(t, "are missing or empty")
	seen.quiet("there is no file")
	write(t, kubeconfigWith(nil, "a", "d"), one)
	seen.names("a", "d")
}

// TestKubeconfig_slowWriter writes in place, in pieces after which the file is valid.
func TestKubeconfig_slowWriter(t *testing.T) {
	path := write(t, kubeconfigWith(nil, "a", "b"), t.TempDir(), "config")
	seen := follow(t, newKubeconfig(&logBuffer{}, path))
	seen.names("a", "b")
	for range 3 {
		f, err := os.Create(path)
		must(t, err)
		data := kubeconfigWith(nil, "a", "b", "c")
		for _, piece := range strings.SplitAfter(string(data), "\n") {
			begin := time.Now()
			_, err := f.WriteString(piece)
			must(t, err)
			time.Sleep(2 * testInterval) // a poll sees each part
			if time.Since(begin) > 8*testInterval {
				t.Skip("the machine is too busy: files are left alone for too long")
			}
		}
		must(t, f.Close())
		seen.names("a", "b", "c")
		replace(t, kubeconfigWith(nil, "a", "b"), path)
		seen.names("a", "b")
	}
	if n := seen.count(); n != 7 {
		t.Errorf("%d reports, want 7", n)
	}
}

func TestKubeconfig_referencedFiles(t *testing.T) {
	dir := t.TempDir()
	ca, _ := certificate(t)
	cert, key := certificate(t)
	must(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	write(t, ca, dir, "pki", "ca.crt")
	write(t, cert, dir, "pki", "client.crt")
	write(t, key, dir, "pki", "client.key")
	write(t, []byte("first"), dir, "token")
	path := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Clusters["a"].CertificateAuthority = "pki/ca.crt"
		k.AuthInfos["a"] = &clientcmdapi.AuthInfo{
			ClientCertificate: "pki/client.crt", ClientKey: filepath.Join(dir, "pki", "client.key"),
		}
		k.AuthInfos["b"] = &clientcmdapi.AuthInfo{TokenFile: "token"}
	}, "a", "b"), dir, "config")
	seen := follow(t, newKubeconfig(&logBuffer{}, path))
	was := seen.names("a", "b")
	a, b := was["a"].Config, was["b"].Config
	if string(a.CAData) != string(ca) || a.CAFile != "" || string(a.CertData) != string(cert) ||
		string(a.KeyData) != string(key) {
		t.Errorf("certificates: %v", a.TLSClientConfig)
	}
	if b.BearerTokenFile != filepath.Join(dir, "token") {
		t.Errorf("token file: %s", b.BearerTokenFile)
	}

	write(t, []byte("second"), dir, "token")
	seen.quiet("client-go reads the token")

	next, _ := certificate(t)
	replace(t, next, dir, "pki", "ca.crt")
	now := seen.until("another authority", func(m map[string]fleet.Entry) bool {
		return m["a"].Access != was["a"].Access
	})
	if string(now["a"].Config.CAData) != string(next) || now["b"].Access != was["b"].Access {
		t.Errorf("another authority: %v", describe(now))
	}

	cert, key = certificate(t)
	write(t, cert, dir, "pki", "client.crt")
	seen.until("a certificate without its key", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	write(t, key, dir, "pki", "client.key")
	seen.until("another certificate", func(m map[string]fleet.Entry) bool {
		return m["a"].Err == nil && string(m["a"].Config.CertData) == string(cert)
	})

	write(t, nil, dir, "pki", "ca.crt")
	seen.until("no authority must not be any authority", func(m map[string]fleet.Entry) bool {
		return m["a"].Err != nil
	})
	write(t, next, dir, "pki", "ca.crt")
	seen.until("the authority is back", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	must(t, os.Remove(filepath.Join(dir, "token")))
	seen.until("no token", func(m map[string]fleet.Entry) bool { return m["b"].Err != nil && m["a"].Err == nil })
	write(t, []byte("third"), dir, "token")
	seen.until("a token", func(m map[string]fleet.Entry) bool { return m["b"].Access == was["b"].Access })
}

// TestKubeconfig_exec has one user with a plugin, and two clusters with an extension for
// the plugin.
func TestKubeconfig_exec(t *testing.T) {
	dir := t.TempDir()
	path := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.AuthInfos["a"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "./plugin", APIVersion: "client.authentication.k8s.io/v1",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
		k.Contexts["b"].AuthInfo = "a"
		for name, c := range k.Clusters {
			c.Extensions = map[string]runtime.Object{
				"client.authentication.k8s.io/exec": &runtime.Unknown{Raw: []byte(`{"for":"` + name + `"}`)},
			}
		}
	}, "a", "b"), dir, "config")
	got := follow(t, newKubeconfig(&logBuffer{}, path)).names("a", "b")
	for name, e := range got {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		raw := e.Config.ExecProvider.Config.(*runtime.Unknown).Raw
		if string(raw) != `{"for":"`+name+`"}` || e.Config.ExecProvider.Command != filepath.Join(dir, "plugin") {
			t.Errorf("%s: plugin %s receives %s", name, e.Config.ExecProvider.Command, raw)
		}
	}
	if got["a"].Access == got["b"].Access {
		t.Error("two clusters have one digest")
	}
}

// TestKubeconfig_secrets has secrets in fields that parsers quote in their errors.
func TestKubeconfig_secrets(t *testing.T) {
	const secret = "s3cr3t"
	cert, key := certificate(t)
	for name, change := range map[string]func(*clientcmdapi.Config){
		"server":     func(k *clientcmdapi.Config) { k.Clusters["a"].Server = "https://me:" + secret + "@host:port" },
		"proxy":      func(k *clientcmdapi.Config) { k.Clusters["a"].ProxyURL = "http://me:" + secret + "@host:port" },
		"proxy kind": func(k *clientcmdapi.Config) { k.Clusters["a"].ProxyURL = "ftp://me:" + secret + "@host" },
		"two ways": func(k *clientcmdapi.Config) {
			k.AuthInfos["a"].Username, k.AuthInfos["a"].Password = "me", secret
		},
		"no key": func(k *clientcmdapi.Config) { k.AuthInfos["a"].ClientCertificateData = cert },
		"wrong key": func(k *clientcmdapi.Config) {
			*k.AuthInfos["a"] = clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: []byte(secret)}
		},
		"no cert": func(k *clientcmdapi.Config) {
			*k.AuthInfos["a"] = clientcmdapi.AuthInfo{ClientCertificateData: []byte(secret), ClientKeyData: key}
		},
		"authority":  func(k *clientcmdapi.Config) { k.Clusters["a"].CertificateAuthorityData = []byte(secret) },
		"no user":    func(k *clientcmdapi.Config) { delete(k.AuthInfos, "a") },
		"no cluster": func(k *clientcmdapi.Config) { delete(k.Clusters, "a") },
		"no server":  func(k *clientcmdapi.Config) { k.Clusters["a"].Server = "" },
		"no command": func(k *clientcmdapi.Config) {
			*k.AuthInfos["a"] = clientcmdapi.AuthInfo{
				Exec: &clientcmdapi.ExecConfig{Env: []clientcmdapi.ExecEnvVar{{Name: "a", Value: secret}}},
			}
		},
		"impersonate": func(k *clientcmdapi.Config) { k.AuthInfos["a"].ImpersonateGroups = []string{"g"} },
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
				k.AuthInfos["a"].Token = secret
				change(k)
			}, "a", "b"), t.TempDir(), "config")
			got := follow(t, newKubeconfig(&logBuffer{}, path)).names("a", "b")
			err := got["a"].Err
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), `context "a"`) {
				t.Errorf("error %v, want one that names the context and no secret", err)
			}
			if got["b"].Err != nil || strings.Contains(got["b"].Access, "token") {
				t.Errorf("the other one: %v", got["b"].Err)
			}
		})
	}
}

func TestKubeconfig_noPath(t *testing.T) {
	err := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: []string{""}}).Follow(t.Context(), nil)
	if err == nil {
		t.Error("no error without a path")
	}
}

func TestKubeconfig_emptySelection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	notify := func(entries []fleet.Entry) { t.Errorf("%d contexts are selected by an empty list", len(entries)) }
	d := directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: []string{"/nonexistent"}, Contexts: []string{}})
	if err := d.Follow(ctx, notify); err == nil {
		t.Error("an empty list of contexts selects all contexts")
	}
}
