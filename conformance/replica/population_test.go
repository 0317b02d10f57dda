// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/watershed-project/watershed/internal/kubetest/binaries"
)

// manifests are created in this order. Those of a step do not depend on each other.
var manifests = [][]string{
	{"00-namespaces", "05-before"},
	{"10-core", "20-workloads", "30-network", "40-storage", "50-admission", "60-types"},
	{"70-custom"},
}

// populate creates the manifests. An older server than the pinned one does not serve
// all of their kinds and fields: the kinds are left out, and logged.
func (w *comparedCluster) populate(ctx context.Context, logf func(string, ...any)) error {
	pinned := os.Getenv(binaries.VersionVariable) == ""
	for _, step := range manifests {
		args := []string{"create"}
		if !pinned {
			args = append(args, "--validate=warn")
		}
		served, err := w.servedKinds()
		if err != nil {
			return err
		}
		for _, name := range step {
			manifest, leftOut, err := servedPart(filepath.Join("testdata", "population", name+".yaml"), served)
			if err != nil {
				return err
			}
			if len(leftOut) > 0 && pinned {
				return fmt.Errorf("%s: the server does not serve %s", name, strings.Join(leftOut, ", "))
			}
			if len(leftOut) > 0 {
				logf("%s: left out, because the server does not serve them: %s", name, strings.Join(leftOut, ", "))
			}
			path := filepath.Join(w.dir, name+".yaml")
			if err := os.WriteFile(path, manifest, 0o644); err != nil {
				return err
			}
			args = append(args, "-f", path)
		}
		if _, err := w.cluster.Kubectl(ctx, args...); err != nil {
			return err
		}
		if slices.Contains(step, "60-types") {
			if _, err := w.cluster.Kubectl(ctx, "wait", "crd", "--all", "--for=condition=Established",
				"--timeout=60s"); err != nil {
				return err
			}
		}
	}
	return w.bulk(ctx)
}

// servedKinds returns the apiVersion and kind of every resource that the server serves
// now, as "apps/v1 Deployment".
func (w *comparedCluster) servedKinds() (map[string]bool, error) {
	_, lists, err := w.client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			served[list.GroupVersion+" "+resource.Kind] = true
		}
	}
	return served, nil
}

// servedPart returns the documents of a manifest whose kind is served, and the kinds of
// the others.
func servedPart(path string, served map[string]bool) (manifest []byte, leftOut []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var object metav1.TypeMeta
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if kind := object.APIVersion + " " + object.Kind; object.Kind != "" && !served[kind] {
			leftOut = append(leftOut, kind)
			continue
		}
		manifest = append(append(manifest, document...), "\n---\n"...)
	}
	return manifest, leftOut, nil
}

// bulkMaps is the number of config maps in the namespace bulk: enough for many pages, and
// for a list that is compressed.
const bulkMaps = 60

func (w *comparedCluster) bulk(ctx context.Context) error {
	for i := range bulkMaps {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("settings-%03d", i),
				Labels: map[string]string{"row": fmt.Sprint(i % 7), "parity": []string{"even", "odd"}[i%2]},
			},
			Data: map[string]string{"text": strings.Repeat(fmt.Sprintf("line %d of many\n", i), 200)},
		}
		if _, err := w.client.CoreV1().ConfigMaps("bulk").Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// applyStatus applies the status of each object of a manifest. kubectl can do that only
// since 1.32.
func (w *comparedCluster) applyStatus(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err := w.dynamic.Resource(resource).Namespace(o.GetNamespace()).ApplyStatus(ctx, o.GetName(), &o,
			metav1.ApplyOptions{FieldManager: "status", Force: true})
		if err != nil {
			return fmt.Errorf("status of %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}
