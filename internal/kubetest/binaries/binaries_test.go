// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package binaries_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// checkout creates a folder that looks like the project's, with these versions.
func checkout(t *testing.T, kubernetes, etcd, kwok string) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module github.com/watershed-project/watershed\n")
	write("conformance/go.mod", "module github.com/watershed-project/watershed/conformance\n")
	for name, require := range map[string]string{
		"kubernetes": "k8s.io/kubernetes " + kubernetes,
		"etcd":       "go.etcd.io/etcd/server/v3 " + etcd,
		"kwok":       "sigs.k8s.io/kwok " + kwok,
		"helm":       "helm.sh/helm/v3 v3.22.0",
	} {
		write("internal/kubetest/binaries/"+name+"/go.mod",
			fmt.Sprintf("module x\n\nrequire %s // indirect\n", require))
	}
	return root
}

func TestLoad(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(binaries.CacheVariable, cache)
	t.Setenv(binaries.VersionVariable, "")
	root := checkout(t, "v1.36.3", "v3.6.1", "v0.7.0")
	// The project is also found from a nested module.
	t.Chdir(filepath.Join(root, "conformance"))
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ got, path string }{
		{set.Etcd.Path, "etcd/v3.6.1/etcd"},
		{set.APIServer.Path, "kubernetes/v1.36.3/kube-apiserver"},
		{set.ControllerManager.Path, "kubernetes/v1.36.3/kube-controller-manager"},
		{set.Scheduler.Path, "kubernetes/v1.36.3/kube-scheduler"},
		{set.Kubectl.Path, "kubernetes/v1.36.3/kubectl"},
		{set.Kwok.Path, "kwok/v0.7.0/kwok"},
		{set.Stages, "kwok/v0.7.0/stages"},
		{set.Helm.Path, "helm/v3.22.0/helm"},
	} {
		if want.got != filepath.Join(cache, want.path) {
			t.Errorf("path %s, want %s", want.got, want.path)
		}
	}
	if n := len(set.Missing()); n != 7 {
		t.Errorf("%d of an empty cache are missing, want 7", n)
	}
	if err := os.MkdirAll(set.Etcd.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	if missing := set.Missing(); len(missing) != 6 || missing[0] != set.APIServer.Path {
		t.Errorf("missing %v, want all but etcd", missing)
	}
}

func TestLoad_anotherKubernetes(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(binaries.CacheVariable, cache)
	t.Chdir(checkout(t, "v1.36.3", "v3.6.1", "v0.7.0"))

	t.Setenv(binaries.VersionVariable, "v1.31.14")
	set, err := binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []binaries.Command{set.APIServer, set.ControllerManager, set.Scheduler, set.Kubectl} {
		if want := filepath.Join(cache, "kubernetes/v1.31.14", c.Name); c.Path != want || c.Version != "v1.31.14" {
			t.Errorf("%s %s is at %s, want v1.31.14 at %s", c.Name, c.Version, c.Path, want)
		}
		if c.Source != "" {
			t.Errorf("%s %s would be built in %s, which has v1.36.3", c.Name, c.Version, c.Source)
		}
	}
	for _, c := range []binaries.Command{set.Etcd, set.Kwok} {
		if want := filepath.Join(cache, c.Name, c.Version, c.Name); c.Path != want || c.Source == "" {
			t.Errorf("%s is at %s and built in %q, want the pinned one at %s", c.Name, c.Path, c.Source, want)
		}
	}
	if set.Etcd.Version != "v3.6.1" || set.Kwok.Version != "v0.7.0" {
		t.Errorf("etcd %s and kwok %s, want the pinned ones", set.Etcd.Version, set.Kwok.Version)
	}

	// The version that the checkout requires is built in the checkout's module, whose
	// go.sum is reviewed.
	t.Setenv(binaries.VersionVariable, "v1.36.3")
	set, err = binaries.Load()
	if err != nil {
		t.Fatal(err)
	}
	if set.APIServer.Source == "" || set.APIServer.Version != "v1.36.3" {
		t.Errorf("kube-apiserver %s is built in %q", set.APIServer.Version, set.APIServer.Source)
	}
}

func TestLoad_notAVersion(t *testing.T) {
	t.Chdir(checkout(t, "v1.36.3", "v3.6.1", "v0.7.0"))
	for _, v := range []string{
		"1.31.14", "v1.31", "latest", "v2.0.0", "v1.31.14+vendor", "../v1.31.14", "v1.31.14/..", "v1.31.14 -X a=b",
	} {
		t.Setenv(binaries.VersionVariable, v)
		if _, err := binaries.Load(); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("version %q in WATERSHED_KUBE_VERSION", v)) {
			t.Errorf("%s: error %v, want one about the version", v, err)
		}
	}
}

func TestLoad_outsideACheckout(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := binaries.Load(); err == nil || !strings.Contains(err.Error(), "not found in or above") {
		t.Errorf("error %v, want one about the checkout", err)
	}
}

func TestLoad_versionIsNotRequired(t *testing.T) {
	root := checkout(t, "v1.36.3", "v3.6.1", "v0.7.0")
	path := filepath.Join(root, "internal/kubetest/binaries/kwok/go.mod")
	if err := os.WriteFile(path, []byte("module x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	if _, err := binaries.Load(); err == nil || !strings.Contains(err.Error(), "version of sigs.k8s.io/kwok") {
		t.Errorf("error %v, want one about kwok's version", err)
	}
}
