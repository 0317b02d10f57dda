// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
)

func dirContexts(log *dirLog, paths ...string) *fleet.Contexts {
	return fleet.NewContexts(&fleet.ContextsOptions{Paths: paths, Interval: dirInterval, Logger: log.logger()})
}

func TestContexts_names(t *testing.T) {
	names := map[string]string{
		"arn:aws:eks:eu-west-1:1234:cluster/prod": "arn:aws:eks:eu-west-1:1234:cluster%2Fprod",
		"gke_project_europe-west1_prod":           "gke_project_europe-west1_prod",
		"default/api-crc-testing:6443/kube:admin": "default%2Fapi-crc-testing:6443%2Fkube:admin",
		"kind-kind": "kind-kind",
		"arn:aws:eks:eu-west-1:1234:cluster%2Fprod": "arn:aws:eks:eu-west-1:1234:cluster%252Fprod",
		"%": "%25",
		"":  "%",
	}
	var contexts, clusters []string
	for context, cluster := range names {
		contexts, clusters = append(contexts, context), append(clusters, cluster)
	}
	path := dirWrite(t, dirKubeconfig(nil, contexts...), t.TempDir(), "config")
	got := dirFollow(t, dirContexts(&dirLog{}, path)).names(clusters...)
	for context, cluster := range names {
		if e := got[cluster]; e.Err != nil || e.Config.BearerToken != "token-of-"+context {
			t.Errorf("context %q: %v", context, e.Err)
		}
	}
}

func TestContexts_sameServerTwice(t *testing.T) {
	path := dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) {
		k.Contexts["b"] = k.Contexts["a"].DeepCopy()
	}, "a"), t.TempDir(), "config")
	got := dirFollow(t, dirContexts(&dirLog{}, path)).names("a", "b")
	if got["a"].Access != got["b"].Access {
		t.Error("the same access has two digests")
	}
}

func TestContexts_default(t *testing.T) {
	dir := t.TempDir()
	first := dirWrite(t, dirKubeconfig(nil, "a", "both"), dir, "first")
	second := dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) {
		k.AuthInfos["both"].Token = "another"
	}, "b", "both"), dir, "second")
	t.Setenv("KUBECONFIG", strings.Join([]string{filepath.Join(dir, "none"), first, second}, string(os.PathListSeparator)))
	got := dirFollow(t, fleet.NewContexts(nil)).names("a", "b", "both")
	kubectl, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	dirMust(t, err)
	for name := range kubectl.Contexts {
		if got[name].Config.BearerToken != kubectl.AuthInfos[name].Token {
			t.Errorf("%s: not the credentials that kubectl would use", name)
		}
	}
}

func TestContexts_chosen(t *testing.T) {
	path := dirWrite(t, dirKubeconfig(nil, "a", "b", "c"), t.TempDir(), "config")
	told := dirFollow(t, fleet.NewContexts(&fleet.ContextsOptions{Paths: []string{path}, Contexts: []string{"c", "none", "a", "c"}, Interval: dirInterval}))
	got := told.names("a", "c", "none")
	if err := got["none"].Err; err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("a context that is not there: %v", err)
	}
	dirRename(t, dirKubeconfig(nil, "a", "b", "c", "none"), path)
	told.until("it is there", func(m map[string]fleet.Entry) bool { return m["none"].Err == nil })
}

func TestContexts_follow(t *testing.T) {
	var log dirLog
	dir := t.TempDir()
	one := filepath.Join(dir, "one")
	two := dirWrite(t, dirKubeconfig(nil, "c"), dir, "two")
	told := dirFollow(t, dirContexts(&log, one, two))
	told.names("c")
	dirWrite(t, dirKubeconfig(nil, "a", "b"), one)
	before := told.names("a", "b", "c")

	dirWrite(t, dirKubeconfig(nil, "a", "b"), one)
	told.calm("the same was written again")

	dirRename(t, dirKubeconfig(func(k *clientcmdapi.Config) { k.AuthInfos["a"].Token = "another" }, "a", "b"), one)
	after := told.until("another token", func(m map[string]fleet.Entry) bool { return m["a"].Access != before["a"].Access })
	if after["b"].Access != before["b"].Access || after["a"].Config.BearerToken != "another" {
		t.Errorf("another token: %v", dirText(after))
	}

	dirWrite(t, []byte("apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user: {token: *top-secret}\n"), one)
	told.calm("it cannot be parsed")
	if n := strings.Count(log.String(), "cannot be parsed"); n != 1 || strings.Contains(log.String(), "top-secret") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	dirWrite(t, dirKubeconfig(nil, "a"), one)
	told.names("a", "c")

	dirMust(t, os.Remove(two))
	told.names("a")
	dirWrite(t, nil, one)
	told.calm("it is empty")
	dirMust(t, os.Remove(one))
	told.calm("there is no file")
	if !strings.Contains(log.String(), "exists and has something in it") {
		t.Errorf("logged:\n%s", log.String())
	}
	dirWrite(t, dirKubeconfig(nil, "a", "d"), one)
	told.names("a", "d")
}

// TestContexts_slowWriter writes in place, in pieces that make sense by themselves.
func TestContexts_slowWriter(t *testing.T) {
	path := dirWrite(t, dirKubeconfig(nil, "a", "b"), t.TempDir(), "config")
	told := dirFollow(t, dirContexts(&dirLog{}, path))
	told.names("a", "b")
	for range 3 {
		f, err := os.Create(path)
		dirMust(t, err)
		data := dirKubeconfig(nil, "a", "b", "c")
		for _, piece := range strings.SplitAfter(string(data), "\n") {
			begin := time.Now()
			_, err := f.WriteString(piece)
			dirMust(t, err)
			time.Sleep(2 * dirInterval)
			if time.Since(begin) > 8*dirInterval {
				t.Skip("the machine is too busy: files are left alone for too long")
			}
		}
		dirMust(t, f.Close())
		told.names("a", "b", "c")
		dirRename(t, dirKubeconfig(nil, "a", "b"), path)
		told.names("a", "b")
	}
	if n := told.times(); n != 7 {
		t.Errorf("told %d times, want 7", n)
	}
}

func TestContexts_referencedFiles(t *testing.T) {
	dir := t.TempDir()
	ca, _ := dirCertificate(t)
	cert, key := dirCertificate(t)
	dirMust(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	dirWrite(t, ca, dir, "pki", "ca.crt")
	dirWrite(t, cert, dir, "pki", "client.crt")
	dirWrite(t, key, dir, "pki", "client.key")
	dirWrite(t, []byte("first"), dir, "token")
	path := dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) {
		k.Clusters["a"].CertificateAuthority = "pki/ca.crt"
		k.AuthInfos["a"] = &clientcmdapi.AuthInfo{ClientCertificate: "pki/client.crt", ClientKey: filepath.Join(dir, "pki", "client.key")}
		k.AuthInfos["b"] = &clientcmdapi.AuthInfo{TokenFile: "token"}
	}, "a", "b"), dir, "config")
	told := dirFollow(t, dirContexts(&dirLog{}, path))
	was := told.names("a", "b")
	a, b := was["a"].Config, was["b"].Config
	if string(a.CAData) != string(ca) || a.CAFile != "" || string(a.CertData) != string(cert) || string(a.KeyData) != string(key) {
		t.Errorf("certificates: %v", a.TLSClientConfig)
	}
	if b.BearerTokenFile != filepath.Join(dir, "token") {
		t.Errorf("token file: %s", b.BearerTokenFile)
	}

	dirWrite(t, []byte("second"), dir, "token")
	told.calm("client-go reads the token")

	next, _ := dirCertificate(t)
	dirRename(t, next, dir, "pki", "ca.crt")
	now := told.until("another authority", func(m map[string]fleet.Entry) bool { return m["a"].Access != was["a"].Access })
	if string(now["a"].Config.CAData) != string(next) || now["b"].Access != was["b"].Access {
		t.Errorf("another authority: %v", dirText(now))
	}

	cert, key = dirCertificate(t)
	dirWrite(t, cert, dir, "pki", "client.crt")
	told.until("a certificate without its key", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	dirWrite(t, key, dir, "pki", "client.key")
	told.until("another certificate", func(m map[string]fleet.Entry) bool {
		return m["a"].Err == nil && string(m["a"].Config.CertData) == string(cert)
	})

	dirWrite(t, nil, dir, "pki", "ca.crt")
	told.until("no authority must not be any authority", func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
	dirWrite(t, next, dir, "pki", "ca.crt")
	told.until("the authority is back", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	dirMust(t, os.Remove(filepath.Join(dir, "token")))
	told.until("no token", func(m map[string]fleet.Entry) bool { return m["b"].Err != nil && m["a"].Err == nil })
	dirWrite(t, []byte("third"), dir, "token")
	told.until("a token", func(m map[string]fleet.Entry) bool { return m["b"].Access == was["b"].Access })
}

// TestContexts_exec has one user with a plugin in two clusters that have something
// to say to it.
func TestContexts_exec(t *testing.T) {
	dir := t.TempDir()
	path := dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) {
		k.AuthInfos["a"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "./plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
		k.Contexts["b"].AuthInfo = "a"
		for name, c := range k.Clusters {
			c.Extensions = map[string]runtime.Object{"client.authentication.k8s.io/exec": &runtime.Unknown{Raw: []byte(`{"for":"` + name + `"}`)}}
		}
	}, "a", "b"), dir, "config")
	got := dirFollow(t, dirContexts(&dirLog{}, path)).names("a", "b")
	for name, e := range got {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		raw := e.Config.ExecProvider.Config.(*runtime.Unknown).Raw
		if string(raw) != `{"for":"`+name+`"}` || e.Config.ExecProvider.Command != filepath.Join(dir, "plugin") {
			t.Errorf("%s: plugin %s is told %s", name, e.Config.ExecProvider.Command, raw)
		}
	}
	if got["a"].Access == got["b"].Access {
		t.Error("two clusters have one digest")
	}
}

// TestContexts_secrets has what errors of parsers and checkers like to quote.
func TestContexts_secrets(t *testing.T) {
	const secret = "s3cr3t"
	cert, key := dirCertificate(t)
	for name, change := range map[string]func(*clientcmdapi.Config){
		"server":     func(k *clientcmdapi.Config) { k.Clusters["a"].Server = "https://me:" + secret + "@host:port" },
		"proxy":      func(k *clientcmdapi.Config) { k.Clusters["a"].ProxyURL = "http://me:" + secret + "@host:port" },
		"proxy kind": func(k *clientcmdapi.Config) { k.Clusters["a"].ProxyURL = "ftp://me:" + secret + "@host" },
		"two ways":   func(k *clientcmdapi.Config) { k.AuthInfos["a"].Username, k.AuthInfos["a"].Password = "me", secret },
		"no key":     func(k *clientcmdapi.Config) { k.AuthInfos["a"].ClientCertificateData = cert },
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
			*k.AuthInfos["a"] = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Env: []clientcmdapi.ExecEnvVar{{Name: "a", Value: secret}}}}
		},
		"impersonate": func(k *clientcmdapi.Config) { k.AuthInfos["a"].ImpersonateGroups = []string{"g"} },
	} {
		t.Run(name, func(t *testing.T) {
			path := dirWrite(t, dirKubeconfig(func(k *clientcmdapi.Config) {
				k.AuthInfos["a"].Token = secret
				change(k)
			}, "a", "b"), t.TempDir(), "config")
			got := dirFollow(t, dirContexts(&dirLog{}, path)).names("a", "b")
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

func TestContexts_noPath(t *testing.T) {
	err := fleet.NewContexts(&fleet.ContextsOptions{Paths: []string{""}}).Follow(t.Context(), nil)
	if err == nil {
		t.Error("no error without a path")
	}
}
