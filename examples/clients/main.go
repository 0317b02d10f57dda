// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command clients sends single requests to a cluster instead of following it. It lists
// objects of a Go type, creates, reads and deletes an object of any kind from a
// manifest, and prints the resources that the cluster serves.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

//go:embed deployment.yaml
var deployment []byte

func main() {
	namespace := flag.String("namespace", "default", "the `namespace` of the config maps")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, *namespace)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, namespace string) error {
	fmt.Fprintln(out, "# config maps")
	if err := configMaps(ctx, out, cluster, namespace); err != nil {
		return err
	}
	fmt.Fprintln(out, "# a deployment from a manifest")
	if err := anyKind(ctx, out, cluster); err != nil {
		return err
	}
	fmt.Fprintln(out, "# what the cluster serves")
	return resources(ctx, out, cluster)
}

func configMaps(ctx context.Context, out io.Writer, cluster *kube.Cluster, namespace string) error {
	query := kube.Query{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: namespace}
	_, err := cluster.List(ctx, query, func(o *wire.Object) error {
		m, err := wire.Decode[*corev1.ConfigMap](o)
		if err != nil {
			return err
		}
		for key, value := range m.Data {
			fmt.Fprintf(out, "%s: %s, %d bytes\n", m.Name, key, len(value))
		}
		return nil
	})
	return err
}

// anyKind creates an object without a Go type, reads it and deletes it. The cluster maps the
// kind to its resource and reads the object. client-go's dynamic client writes.
func anyKind(ctx context.Context, out io.Writer, cluster *kube.Cluster) (err error) {
	var manifest unstructured.Unstructured
	if err := yaml.Unmarshal(deployment, &manifest.Object); err != nil {
		return err
	}
	resource, err := cluster.Resolve(ctx, manifest.GroupVersionKind())
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		return err
	}
	namespace, name := manifest.GetNamespace(), manifest.GetName()
	objects := client.Resource(resource.GroupVersionResource).Namespace(namespace)
	if _, err := objects.Create(ctx, &manifest, metav1.CreateOptions{}); err != nil {
		return err
	}
	fmt.Fprintf(out, "created %s %s/%s\n", resource.Kind, namespace, name)
	defer func() {
		// Ctrl-C must not leave the object behind.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		deleted := objects.Delete(after, name, metav1.DeleteOptions{})
		if err = errors.Join(err, deleted); err == nil {
			fmt.Fprintf(out, "deleted %s %s/%s\n", resource.Kind, namespace, name)
		}
	}()
	read, err := cluster.Get(ctx, kube.Query{Resource: resource.GroupVersionResource, Namespace: namespace}, name)
	if err != nil {
		return err
	}
	return describe(out, read)
}

// describe decodes the same bytes twice, with and without a Go type.
func describe(out io.Writer, o *wire.Object) error {
	typed, err := wire.Decode[*appsv1.Deployment](o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%T: %s, image %s\n", typed, typed.Kind, typed.Spec.Template.Spec.Containers[0].Image)
	untyped, err := wire.Decode[*unstructured.Unstructured](o)
	if err != nil {
		return err
	}
	replicas, _, err := unstructured.NestedInt64(untyped.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%T: %s, replicas %d\n", untyped, untyped.GetKind(), replicas)
	return nil
}

// resources prints the same as kubectl api-resources.
func resources(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
	all, err := cluster.Resources(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r kube.Resource) bool { return !r.Preferred })
	slices.SortFunc(all, func(a, b kube.Resource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tSHORTNAMES\tAPIVERSION\tNAMESPACED\tKIND")
	for _, r := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%t\t%s\n", r.Resource, strings.Join(r.ShortNames, ","), r.GroupVersion(),
			r.Namespaced, r.Kind)
	}
	return table.Flush()
}
