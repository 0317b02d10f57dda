// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

const kubernetesMod = `// This is a generated file. Do not edit directly.

module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

godebug winsymlink=0

require (
	github.com/blang/semver/v4 v4.0.0
	k8s.io/api v0.0.0
	k8s.io/client-go v0.0.0
	k8s.io/klog/v2 v2.130.1
	k8s.io/utils v0.0.0-20241104100929-3ea5e8cea738
)

require (
	github.com/armon/go-socks5 v0.0.0-20160902184237-e75332964ef5 // indirect
	k8s.io/kube-proxy v0.0.0 // indirect
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
	k8s.io/kube-proxy => ./staging/src/k8s.io/kube-proxy
)
`

func TestModFile(t *testing.T) {
	got, err := modFile("k8s.io/kubernetes", "v1.33.13", []byte(kubernetesMod))
	if err != nil {
		t.Fatal(err)
	}
	const want = `module generated.invalid/kubernetes

go 1.24.0

godebug (
	default=go1.24
	winsymlink=0
)

require k8s.io/kubernetes v1.33.13

replace k8s.io/api => k8s.io/api v0.33.13

replace k8s.io/client-go => k8s.io/client-go v0.33.13

replace k8s.io/kube-proxy => k8s.io/kube-proxy v0.33.13
`
	if string(got) != want {
		t.Errorf("go.mod is\n%s\nwant\n%s", got, want)
	}
}

func TestModFile_prerelease(t *testing.T) {
	got, err := modFile("k8s.io/kubernetes", "v1.38.0-rc.1", []byte(kubernetesMod))
	if err != nil || !strings.Contains(string(got), "k8s.io/api => k8s.io/api v0.38.0-rc.1\n") {
		t.Errorf("%v, go.mod is\n%s", err, got)
	}
}

func TestModFile_refuses(t *testing.T) {
	for name, test := range map[string]struct{ version, own, want string }{
		"another module": {"v1.33.13", "module k8s.io/api\n\ngo 1.24.0\n", "not that of k8s.io/kubernetes"},
		"nothing":        {"v1.33.13", "", "not that of k8s.io/kubernetes"},
		"no language":    {"v1.33.13", "module k8s.io/kubernetes\n", "not that of k8s.io/kubernetes"},
		"no staging modules": {
			"v1.33.13", "module k8s.io/kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/klog/v2 v2.130.1\n",
			"no staging module",
		},
		"not a go.mod": {"v1.33.13", "<html>", "go.mod:1"},
		"a new era":    {"v2.0.0", kubernetesMod, "of v1 only"},
	} {
		if got, err := modFile("k8s.io/kubernetes", test.version, []byte(test.own)); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q; go.mod is\n%s", name, err, test.want, got)
		}
	}
}

func TestTidyReasons(t *testing.T) {
	got := tidyReasons([]byte(`go: downloading k8s.io/api v0.31.14
go: generated.invalid/kubernetes imports
	k8s.io/kubernetes/cmd/kubectl imports
	k8s.io/endpointslice/util tested by
	k8s.io/endpointslice/util.test imports
	k8s.io/endpointslice: k8s.io/endpointslice@v0.31.14: reading it: 403 Forbidden
	server response: not available
go: generated.invalid/kubernetes imports
	k8s.io/endpointslice/metrics: k8s.io/endpointslice@v0.31.14: reading it: 403 Forbidden
	server response: not available
go: updates to go.mod needed
`))
	const want = "k8s.io/endpointslice@v0.31.14: reading it: 403 Forbidden\nserver response: not available\ngo: " +
		"updates to go.mod needed"
	if got != want {
		t.Errorf("reasons are\n%s\nwant\n%s", got, want)
	}
}

// proxy makes go download its modules from a folder that has only these, each a map of
// files by path.
func proxy(t *testing.T, modules map[module.Version]map[string]string) {
	t.Helper()
	root := t.TempDir()
	for m, files := range modules {
		var archive bytes.Buffer
		z := zip.NewWriter(&archive)
		for name, content := range files {
			w, err := z.Create(m.String() + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		served := filepath.Join(root, filepath.FromSlash(m.Path), "@v", m.Version)
		write(t, served+".mod", files["go.mod"])
		write(t, served+".info", fmt.Sprintf("{%q: %q}", "Version", m.Version))
		write(t, served+".zip", archive.String())
	}
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(root))
	t.Setenv("GOSUMDB", "off") // it does not have these modules
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	t.Cleanup(func() {
		// The files that go writes there are read-only. The folder is set again, because
		// without it this would empty the user's own module cache.
		clean := exec.Command("go", "clean", "-modcache")
		clean.Env = append(os.Environ(), "GOMODCACHE="+cache)
		if out, err := clean.CombinedOutput(); err != nil {
			t.Errorf("go clean: %v\n%s", err, out)
		}
	})
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// small returns a Kubernetes that is complete as far as builds are concerned.
func small() map[module.Version]map[string]string {
	return map[module.Version]map[string]string{
		{Path: "k8s.io/kubernetes", Version: "v1.5.2"}: {
			"go.mod": "module k8s.io/kubernetes\n\ngo 1.26\n\nrequire (\n\tk8s.io/api v0.0.0\n\tk8s.io/sample " +
				"v0.0.0\n)\n\n" +
				"replace k8s.io/api => ./staging/src/k8s.io/api\n",
			"cmd/kubectl/main.go": "package main\n\nimport \"k8s.io/api\"\n\nfunc main() { println(api.Version) }\n",
		},
		{Path: "k8s.io/api", Version: "v0.5.2"}: {
			"go.mod": "module k8s.io/api\n\ngo 1.26\n",
			"api.go": "package api\n\nconst Version = \"v0.5.2\"\n",
		},
		// A module that no command imports is only read, not downloaded.
		{Path: "k8s.io/sample", Version: "v0.5.2"}: {"go.mod": "module k8s.io/sample\n\ngo 1.26\n"},
	}
}

// smallCommands returns the commands of small, and one that is already built.
func smallCommands(t *testing.T) (commands []binaries.Command, cache string) {
	t.Helper()
	cache = t.TempDir()
	command := func(name string) binaries.Command {
		return binaries.Command{
			Name: name, Version: "v1.5.2", Package: "k8s.io/kubernetes/cmd/" + name, Module: "k8s.io/kubernetes",
			Path: filepath.Join(cache, "kubernetes", "v1.5.2", name),
		}
	}
	built := command("kube-apiserver") // small has no source to build it
	write(t, built.Path, "")
	pinned := command("etcd")
	pinned.Source = "of the checkout"
	return []binaries.Command{pinned, built, command("kubectl")}, cache
}

func TestGiveSource(t *testing.T) {
	proxy(t, small())
	commands, cache := smallCommands(t)
	remove, err := giveSource(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	if commands[0].Source != "of the checkout" {
		t.Errorf("the source of etcd is now %s", commands[0].Source)
	}
	kubectl := commands[2]
	if err := build(t.Context(), kubectl); err != nil {
		t.Fatal(err)
	}
	remove()
	if out, err := exec.Command(kubectl.Path).CombinedOutput(); err != nil || string(out) != "v0.5.2\n" {
		t.Errorf("the binary says %q, %v", out, err)
	}
	onlyIn(t, filepath.Join(cache, "kubernetes"), "v1.5.2")

	// If everything is built, nothing is downloaded.
	t.Setenv("GOPROXY", "off")
	remove, err = giveSource(t.Context(), commands)
	if err != nil {
		t.Fatal(err)
	}
	remove()
}

func TestGiveSource_fails(t *testing.T) {
	for _, missing := range []module.Version{
		{Path: "k8s.io/kubernetes", Version: "v1.5.2"},
		{Path: "k8s.io/api", Version: "v0.5.2"},
	} {
		t.Run(filepath.Base(missing.Path), func(t *testing.T) {
			some := small()
			maps.DeleteFunc(some, func(m module.Version, _ map[string]string) bool { return m == missing })
			proxy(t, some)
			commands, cache := smallCommands(t)
			_, err := giveSource(t.Context(), commands)
			if err == nil || !strings.HasPrefix(err.Error(), "module of k8s.io/kubernetes v1.5.2: ") ||
				!strings.Contains(err.Error(), missing.String()) {
				t.Errorf("error %v, want one that names %s", err, missing)
			}
			onlyIn(t, filepath.Join(cache, "kubernetes"), "v1.5.2")
		})
	}
}

// onlyIn checks the content of a folder.
func onlyIn(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has %v, want %v", dir, got, want)
	}
}
