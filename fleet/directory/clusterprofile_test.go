// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
)

// testPlugin returns a plugin that reads the token from the file in a directory that the
// profile names. It needs an argument and a variable.
func testPlugin(t *testing.T) (plugin clientcmdapi.ExecConfig, tokens string) {
	t.Helper()
	tokens = t.TempDir()
	script := write(t, []byte(`#!/bin/sh
[ "$1" = "--from" ] && [ "$MODE" = "test" ] || { echo "arguments $*, mode $MODE" >&2; exit 1; }
file=$(printf '%s' "$KUBERNETES_EXEC_INFO" | sed -n 's/.*"config":{"file":"\([a-z]*\)"}.*/\1/p')
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$(cat "$2/$file")"
`), t.TempDir(), "plugin")
	must(t, os.Chmod(script, 0o700))
	return clientcmdapi.ExecConfig{
		Command: script, Args: []string{"--from"}, APIVersion: "client.authentication.k8s.io/v1",
		ProvideClusterInfo: true,
	}, tokens
}

// extension returns an extension of a profile's cluster.
func extension(name string, extension any) any {
	return map[string]any{"name": name, "extension": extension}
}

// provider returns an access provider for the member.
func (h *hub) provider(name string, extensions ...any) any {
	cfg := h.member.Config()
	return map[string]any{"name": name, "cluster": map[string]any{
		"server":                     cfg.Host,
		"certificate-authority-data": base64.StdEncoding.EncodeToString(cfg.CAData),
		"extensions":                 extensions,
	}}
}

func (h *hub) testClusterProfiles(t *testing.T) {
	plugin, tokens := testPlugin(t)
	write(t, []byte(h.member.Config().BearerToken), tokens, "right")
	write(t, []byte("wrong"), tokens, "wrong")
	opts := &directory.ClusterProfileOptions{
		Plugins: map[string]directory.AccessPlugin{"files": {Exec: plugin, ProfileArgs: true, ProfileEnv: true}},
	}
	seen := follow(t, directory.NewClusterProfile(h.cluster, opts))
	seen.names() // the hub does not have the resource
	definition, err := os.ReadFile(filepath.Join("testdata", "clusterprofiles.yaml"))
	must(t, err)
	must(t, h.CreateManifest(t.Context(), string(definition)))
	seen.quiet("there are none")

	args := extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-args", []any{tokens})
	env := extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", map[string]any{"MODE": "test"})
	input := func(file string) any {
		return extension("client.authentication.k8s.io/exec", map[string]any{"file": file})
	}
	h.profile(t, "one", "a", map[string]any{
		"accessProviders": []any{h.provider("other"), h.provider("files", args, env, input("right"))},
	})
	h.profile(t, "one", "old.name", map[string]any{
		"credentialProviders": []any{h.provider("files", args, env, input("right"))},
	})
	h.profile(t, "two", "a", map[string]any{"accessProviders": []any{h.provider("google"), h.provider("azure")}})
	h.profile(t, "two", "b", nil)
	got := seen.until("all", func(m map[string]fleet.Entry) bool {
		return len(m) == 4 && m["one.a"].Err == nil && m["one.old.name"].Err == nil &&
			strings.Contains(m["two.a"].Err.Error(), "google")
	})
	h.reach(t, got["one.a"])
	h.reach(t, got["one.old.name"])
	for name, want := range map[string]string{
		"two.a": "two/a in 127.0.0.1", // followed by the cause
		"two.b": "access providers are (none), plugins exist for files, and secrets are not read",
	} {
		if err := got[name].Err; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := got["two.a"].Err; !strings.Contains(err.Error(),
		"access providers are azure, google, plugins exist for files") {
		t.Errorf("two.a: %v", err)
	}

	h.profile(t, "one", "a", map[string]any{"accessProviders": []any{h.provider("files", args, env, input("wrong"))}})
	now := seen.until("another input", func(m map[string]fleet.Entry) bool {
		return m["one.a"].Access != got["one.a"].Access
	})
	h.refused(t, now["one.a"].Config)
	h.profile(t, "one", "a", map[string]any{
		"accessProviders": []any{
			h.provider("files", extension("clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "no list")),
		},
	})
	seen.until("it is broken", func(m map[string]fleet.Entry) bool { return m["one.a"].Err != nil })
	h.profile(t, "one", "a", map[string]any{"accessProviders": []any{h.provider("files", args, env, input("right"))}})
	seen.until("it is mended", func(m map[string]fleet.Entry) bool { return m["one.a"].Access == got["one.a"].Access })

	h.testProfileLabels(t, seen)
	profiles := h.dynamic.Resource(profileResource)
	must(t, profiles.Namespace("two").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	seen.names("one.a", "one.old.name", "two.b")
	follow(t, directory.NewClusterProfile(h.cluster, &directory.ClusterProfileOptions{Namespace: "two"})).names("two.b")
	follow(t, directory.NewClusterProfile(h.cluster, &directory.ClusterProfileOptions{LabelSelector: "a=b"})).names()
	follow(t, directory.NewClusterProfile(h.cluster, &directory.ClusterProfileOptions{Version: "v9"})).names()
	for _, key := range []string{"one/a", "one/old.name", "two/b"} {
		namespace, name, _ := strings.Cut(key, "/")
		must(t, profiles.Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	seen.names()
}

// testProfileLabels gives a profile properties and labels, of which some have the same name.
func (h *hub) testProfileLabels(t *testing.T, seen *recorder) {
	property := func(name, value string) any { return map[string]any{"name": name, "value": value} }
	h.profile(t, "two", "b", map[string]any{"properties": []any{
		property("location", "eu"), property("cluster.clusterset.k8s.io", "b"), property("no label!", "x"),
		property("note", "not a value"),
	}})
	_, err := h.dynamic.Resource(profileResource).Namespace("two").Patch(t.Context(), "b", types.MergePatchType,
		[]byte(`{"metadata": {"labels": {"env": "prod", "location": "us"}}}`), metav1.PatchOptions{})
	must(t, err)
	want := map[string]string{"env": "prod", "location": "us", "cluster.clusterset.k8s.io": "b"}
	seen.until("labels", func(m map[string]fleet.Entry) bool { return maps.Equal(m["two.b"].Labels, want) })
}

func (h *hub) testProfileSecrets(t *testing.T) {
	for _, key := range []string{"one/a", "one/b", "one/c", "two/d"} {
		namespace, name, _ := strings.Cut(key, "/")
		h.profile(t, namespace, name, nil)
	}
	seen := follow(t, directory.NewClusterProfile(h.cluster, &directory.ClusterProfileOptions{Consumer: "ours"}))
	inOne := follow(t, directory.NewClusterProfile(h.cluster,
		&directory.ClusterProfileOptions{Consumer: "ours", Namespace: "one"}))
	before := seen.names("one.a", "one.b", "one.c", "two.d")
	for name, e := range before {
		if e.Err == nil || !strings.Contains(e.Err.Error(), `consumer "ours"`) {
			t.Errorf("%s: %v", name, e.Err)
		}
	}
	secret := func(namespace, name, user string, labels ...string) {
		t.Helper()
		all := map[string]string{}
		for _, l := range labels {
			key, value, _ := strings.Cut(l, "=")
			all["x-k8s.io/"+key] = value
		}
		h.secret(t, namespace, name, "Opaque", all, map[string][]byte{"Config": h.kubeconfig(user)})
	}
	// Next to the profile, with its own label.
	secret("one", "a", "", "cluster-profile=a", "cluster-inventory-consumer=ours")
	// In the consumer's namespace.
	secret("ours", "b", "", "cluster-profile=b", "cluster-profile-namespace=one")
	secret("ours", "d", "", "cluster-profile=d", "cluster-profile-namespace=two")
	// None of these is for consumer ours: they are for another consumer, or their author
	// has no rights in the profile's namespace.
	secret("one", "c1", "", "cluster-profile=c", "cluster-inventory-consumer=theirs")
	secret("theirs", "c2", "", "cluster-profile=c", "cluster-profile-namespace=one")
	secret("theirs", "c3", "", "cluster-profile=c", "cluster-profile-namespace=one", "cluster-inventory-consumer=ours")
	secret("ours", "c4", "", "cluster-profile=c", "cluster-profile-namespace=one", "cluster-inventory-consumer=theirs")
	got := seen.until("credentials", func(m map[string]fleet.Entry) bool {
		return m["one.a"].Err == nil && m["one.b"].Err == nil && m["two.d"].Err == nil
	})
	seen.quiet("secrets of others")
	h.reach(t, got["one.a"])
	h.reach(t, got["one.b"])
	h.reach(t, got["two.d"])
	if err := seen.last()["one.c"].Err; err == nil || !strings.Contains(err.Error(), "no secret") {
		t.Errorf("one.c has credentials from others: %v", err)
	}
	inOne.until("in this namespace", func(m map[string]fleet.Entry) bool {
		return m["one.a"].Err == nil && m["one.b"].Err != nil
	})

	secret("one", "a", "second", "cluster-profile=a", "cluster-inventory-consumer=ours")
	now := seen.until("it is renewed", func(m map[string]fleet.Entry) bool {
		return m["one.a"].Access != got["one.a"].Access
	})
	h.reach(t, now["one.a"])
	secret("ours", "a2", "", "cluster-profile=a", "cluster-profile-namespace=one")
	seen.until("two secrets", func(m map[string]fleet.Entry) bool {
		return m["one.a"].Err != nil && strings.Contains(m["one.a"].Err.Error(), "2 secrets")
	})
	h.deleteSecret(t, "ours", "a2")
	seen.until("one secret", func(m map[string]fleet.Entry) bool { return m["one.a"].Access == now["one.a"].Access })
	h.secret(t, "one", "a", "Opaque", map[string]string{
		"x-k8s.io/cluster-profile": "a", "x-k8s.io/cluster-inventory-consumer": "ours",
	}, nil)
	got = seen.until("it is empty", func(m map[string]fleet.Entry) bool { return m["one.a"].Err != nil })
	if err := got["one.a"].Err; !strings.Contains(err.Error(), "secret one/a") {
		t.Errorf("it is empty: %v", err)
	}
	h.deleteSecret(t, "ours", "b")
	seen.until("no credentials", func(m map[string]fleet.Entry) bool { return m["one.b"].Err != nil && len(m) == 4 })
	must(t, h.dynamic.Resource(profileResource).Namespace("two").Delete(t.Context(), "d", metav1.DeleteOptions{}))
	seen.names("one.a", "one.b", "one.c")
}

func TestAccessPlugin(t *testing.T) {
	raw := func(name, text string) clientcmdv1.NamedExtension {
		return clientcmdv1.NamedExtension{Name: name, Extension: runtime.RawExtension{Raw: []byte(text)}}
	}
	ca, _ := certificate(t)
	cluster := &clientcmdv1.Cluster{
		Server: "https://a/path", TLSServerName: "name", CertificateAuthorityData: ca, ProxyURL: "http://proxy",
		DisableCompression: true,
		Extensions: []clientcmdv1.NamedExtension{
			raw("clusterprofiles.multicluster.x-k8s.io/exec/additional-args", `["c","d"]`),
			raw("clusterprofiles.multicluster.x-k8s.io/exec/additional-envs",
				`{"X":"profile","Y":"profile","A":"profile"}`),
			raw("client.authentication.k8s.io/exec", `{"k":"v"}`),
			raw("something/else", `7`),
		},
	}
	exec := clientcmdapi.ExecConfig{
		Command: "plugin", APIVersion: "client.authentication.k8s.io/v1", Args: slices.Grow([]string{"a", "b"}, 8),
		Env: []clientcmdapi.ExecEnvVar{{Name: "X", Value: "own"}}, ProvideClusterInfo: true,
	}
	for _, test := range []struct {
		args, env          bool
		wantArgs, wantVars string
	}{
		{false, false, "[a b]", "[{X own}]"},
		{true, false, "[a b c d]", "[{X own}]"},
		{false, true, "[a b]", "[{X own} {A profile} {Y profile}]"},
		{true, true, "[a b c d]", "[{X own} {A profile} {Y profile}]"},
	} {
		p := &directory.AccessPlugin{Exec: exec, ProfileArgs: test.args, ProfileEnv: test.env}
		_, err := directory.AccessPluginConfig(p, cluster)
		must(t, err)
		cfg, err := directory.AccessPluginConfig(p, cluster) // a second call adds nothing
		must(t, err)
		e := cfg.ExecProvider
		if fmt.Sprint(e.Args) != test.wantArgs || fmt.Sprint(e.Env) != test.wantVars {
			t.Errorf("arguments %v, variables %v", e.Args, e.Env)
		}
		if e.Command != "plugin" || e.InteractiveMode != clientcmdapi.NeverExecInteractiveMode ||
			!e.ProvideClusterInfo || string(e.Config.(*runtime.Unknown).Raw) != `{"k":"v"}` {
			t.Errorf("plugin %v", e)
		}
		proxy, err := cfg.Proxy(nil)
		if cfg.Host != "https://a/path" || cfg.ServerName != "name" || string(cfg.CAData) != string(ca) || err != nil ||
			proxy.Host != "proxy" || !cfg.DisableCompression {
			t.Errorf("configuration %v", cfg)
		}
	}
	if len(exec.Args) != 2 || len(exec.Env) != 1 {
		t.Error("the program's own plugin was changed")
	}
	own := &directory.AccessPlugin{Exec: *exec.DeepCopy()}
	own.Exec.Config = &runtime.Unknown{Raw: []byte(`{"own":1}`)}
	cfg, err := directory.AccessPluginConfig(own, &clientcmdv1.Cluster{Server: "https://a"})
	if err != nil || string(cfg.ExecProvider.Config.(*runtime.Unknown).Raw) != `{"own":1}` {
		t.Errorf("the program's own input: %v, %v", cfg, err)
	}
	for name, c := range map[string]*clientcmdv1.Cluster{
		"no server": {},
		"file":      {Server: "https://a", CertificateAuthority: "/etc/hostname"},
		"proxy":     {Server: "https://a", ProxyURL: "ftp://p"},
	} {
		if _, err := directory.AccessPluginConfig(own, c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := directory.AccessPluginConfig(&directory.AccessPlugin{}, cluster); err == nil {
		t.Error("a plugin without a command")
	}
}
