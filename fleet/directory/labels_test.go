// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/internal/expect"
)

// labelsExtension returns the extension of a kubeconfig with labels in JSON.
func labelsExtension(labels string) map[string]runtime.Object {
	return map[string]runtime.Object{
		directory.LabelsExtension: &runtime.Unknown{Raw: []byte(labels), ContentType: runtime.ContentTypeJSON},
	}
}

// TestKubeconfig_labels reads the labels of contexts and their clusters, and changes them.
func TestKubeconfig_labels(t *testing.T) {
	dir := t.TempDir()
	labelled := func(cluster, context string) []byte {
		return kubeconfigWith(func(k *clientcmdapi.Config) {
			k.Clusters["a"].Extensions = labelsExtension(cluster)
			k.Contexts["a"].Extensions = labelsExtension(context)
		}, "a", "b")
	}
	path := write(t, labelled(`{"env": "prod", "region": "eu"}`, `{"region": "us", "example.com/team": "x"}`), dir,
		"config")
	seen := follow(t, directory.Poll(directory.NewKubeconfig(&directory.KubeconfigOptions{Paths: []string{path}}),
		testInterval))
	got := seen.names("a", "b")
	expect.Equal(t, got["a"].Labels, map[string]string{"env": "prod", "region": "us", "example.com/team": "x"})
	if len(got["b"].Labels) > 0 {
		t.Errorf("b has %v", got["b"].Labels)
	}
	access := got["a"].Access
	replace(t, labelled(`{"env": "test"}`, `{}`), path)
	got = seen.until("other labels", func(m map[string]fleet.Entry) bool {
		return m["a"].Labels["env"] == "test" && len(m["a"].Labels) == 1
	})
	if got["a"].Access != access {
		t.Error("other labels are another access")
	}
	for _, bad := range []string{`{"env": 1}`, `["env"]`, `{"bad key!": "x"}`, `{"env": "not a value"}`} {
		replace(t, labelled(bad, `{}`), path)
		got = seen.until("an error about "+bad, func(m map[string]fleet.Entry) bool { return m["a"].Err != nil })
		if err := got["a"].Err.Error(); !strings.Contains(err,
			`kubeconfig context "a": cluster "a": extension watershed.dev/labels`) || got["b"].Err != nil {
			t.Errorf("%s: %s", bad, err)
		}
		replace(t, labelled(`{}`, `{}`), path)
		seen.until("no error", func(m map[string]fleet.Entry) bool { return m["a"].Err == nil })
	}
}

// TestKubeconfigDir_labels reads the labels of a file.
func TestKubeconfigDir_labels(t *testing.T) {
	dir := t.TempDir()
	write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Clusters["x"].Extensions = labelsExtension(`{"env": "prod"}`)
	}, "x"), dir, "one.yaml")
	write(t, kubeconfigWith(func(k *clientcmdapi.Config) {
		k.Contexts["x"].Extensions = labelsExtension(`7`)
	}, "x"), dir, "two.yaml")
	got := follow(t, directory.NewKubeconfigDir(dir, nil)).names("one", "two")
	expect.Equal(t, got["one"].Labels, map[string]string{"env": "prod"})
	if err := got["two"].Err; err == nil || !strings.Contains(err.Error(), "extension watershed.dev/labels") {
		t.Errorf("the error is %v", err)
	}
}
