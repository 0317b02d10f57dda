// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

const kustomizeDir = "../../deploy/kustomize"

// helmLabels are the labels that only objects of Helm have.
var helmLabels = []string{"helm.sh/chart", "app.kubernetes.io/managed-by"}

// kustomize returns the objects of a folder, as kubectl builds them.
func kustomize(t *testing.T, dir string) (string, []*unstructured.Unstructured) {
	t.Helper()
	set, err := binaries.Load()
	expect.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), set.Kubectl.Path, "kustomize",
		filepath.Join(kustomizeDir, dir)).Output()
	expect.NoError(t, err)
	return string(out), parseManifests(t, string(out))
}

// withoutHelm returns objects by their identity, without the labels of Helm.
func withoutHelm(objects []*unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, o := range objects {
		labels := o.GetLabels()
		for _, name := range helmLabels {
			delete(labels, name)
		}
		o.SetLabels(labels)
		all[objectID(o)] = o.Object
	}
	return all
}

// TestKustomize_base checks that the base has what the chart renders by default.
func TestKustomize_base(t *testing.T) {
	needsDeploy(t, "short", "full")
	_, got := kustomize(t, "base")
	expect.Equal(t, withoutHelm(got), withoutHelm(newChart(t).render(t)))
}

// TestKustomize_overlay checks that the example of an overlay changes the objects of the base,
// and adds none.
func TestKustomize_overlay(t *testing.T) {
	needsDeploy(t, "short", "full")
	_, base := kustomize(t, "base")
	_, got := kustomize(t, "overlays/members")
	if len(got) != len(base) {
		t.Errorf("%d objects, want %d", len(got), len(base))
	}
	d := deploymentOf(t, got)
	checkRestricted(t, d)
	o := settingsOf(t, got, d)
	checkRights(t, got, o, d)
	if !slices.Equal(o.Sources.Directories, []string{"/etc/watershed/clusters/members"}) ||
		o.Listening.CertFile == "" || o.Access.Home == "" || o.Access.Home != o.Sources.InCluster {
		t.Errorf("the overlay has the directories %v, the certificate %q and the home %q", o.Sources.Directories,
			o.Listening.CertFile, o.Access.Home)
	}
	expect.Equal(t, configOf(t, got, d), configOf(t, base, deploymentOf(t, base)))
}

// TestKustomize_files checks that the files of the base are those that the chart renders.
func TestKustomize_files(t *testing.T) {
	needsDeploy(t, "short", "full", "write")
	text, err := newChart(t).template(t.Context())
	expect.NoError(t, err)
	files := splitTemplates(text)
	if len(files) < 5 {
		t.Fatalf("%d files", len(files))
	}
	var names []string
	for name, content := range files {
		names = append(names, name)
		checkFile(t, filepath.Join(kustomizeDir, "base", name), spdxYAML+content)
	}
	slices.Sort(names)
	checkFile(t, filepath.Join(kustomizeDir, "base", "kustomization.yaml"), spdxYAML+
		"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - "+
		strings.Join(names, "\n  - ")+"\n")
	found, err := os.ReadDir(filepath.Join(kustomizeDir, "base"))
	expect.NoError(t, err)
	if len(found) != len(files)+1 {
		t.Errorf("the base has %d files, want %d", len(found), len(files)+1)
	}
}

const spdxYAML = `# SPDX-License-Identifier: Apache-2.0
# Copyright The Watershed Authors
#
# Generated from the chart with its default values: run make chart-files.
`

// splitTemplates returns the output of helm template by the file of the template, without the
// labels of Helm.
func splitTemplates(text string) map[string]string {
	files := map[string]string{}
	for document := range strings.SplitSeq(text, "---\n# Source: ") {
		path, content, ok := strings.Cut(document, "\n")
		if !ok {
			continue
		}
		var kept strings.Builder
		for line := range strings.Lines(content) {
			if !slices.ContainsFunc(helmLabels, func(name string) bool {
				return strings.HasPrefix(strings.TrimSpace(line), name+":")
			}) {
				kept.WriteString(line)
			}
		}
		files[filepath.Base(path)] += "---\n" + strings.TrimSpace(kept.String()) + "\n"
	}
	return files
}
