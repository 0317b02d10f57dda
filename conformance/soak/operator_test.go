// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package soak

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// operator is the program of examples/operator.
type operator struct {
	*child
	cluster *kubetest.Cluster
	client  *kubernetes.Clientset
}

// siteFolder is the folder of the operator, from the root of the checkout.
var siteFolder = filepath.Join("examples", "operator")

// defineSites creates the operator's type, which must exist before the subject starts.
func defineSites(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	for _, args := range [][]string{
		{"apply", "-f", filepath.Join("..", "..", siteFolder, "crd.yaml")},
		{"wait", "--for=condition=Established", "crd/" + sites.GroupResource().String(), "--timeout=60s"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

// startOperator starts the operator of a cluster with flags. It ends with the test.
func startOperator(t *testing.T, c *kubetest.Cluster, flags ...string) *operator {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build(t.TempDir(), siteFolder, ".")
	if err != nil {
		t.Fatal(err)
	}
	program, err := startChild(binary, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := program.stop(); err != nil {
			t.Error(err)
		}
	})
	return &operator{child: program, cluster: c, client: client}
}

// errors returns the errors that the operator logged, from a line of its log on.
func (o *operator) errors(from int) []string { return errorsIn(o.lines(from)) }

// errorsIn returns the errors in a log, without those that every operator has: conflicts of
// writes that were based on an older state.
func errorsIn(lines []string) []string {
	var found []string
	for _, line := range lines {
		wrong := strings.Contains(line, "level=ERROR") || strings.HasPrefix(line, "E")
		if wrong && !strings.Contains(line, "the object has been modified") {
			found = append(found, line)
		}
	}
	return found
}

// reconciled returns an error with the site that is not in its desired state. The
// operator does not wait for the pods of a site: they are checked only if withPods is
// set.
func (o *operator) reconciled(ctx context.Context, withPods bool) (count int, err error) {
	if err := o.running(); err != nil {
		return 0, err
	}
	all, err := o.cluster.Truth(ctx, sites.GroupResource())
	if err != nil {
		return 0, err
	}
	pods, err := o.podsOf(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range all.Objects {
		site := s.Object.(*unstructured.Unstructured)
		namespace, name := site.GetNamespace(), site.GetName()
		secretName, _, _ := unstructured.NestedString(site.Object, "spec", "secret")
		secret, err := o.client.CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
		if err != nil {
			continue // then there is nothing to do
		}
		want := checksum(secret)
		deployment, err := o.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("site %s/%s: %w", namespace, name, err)
		}
		if err := compareSite(site, deployment, want); err != nil {
			return 0, fmt.Errorf("site %s/%s: %w", namespace, name, err)
		}
		has, _, _ := unstructured.NestedInt64(site.Object, "status", "pods")
		if want := pods[namespace+"/"+name]; withPods && has != want {
			return 0, fmt.Errorf("site %s/%s: its status has %d pods, in etcd are %d", namespace, name, has, want)
		}
		count++
	}
	if count == 0 {
		return 0, fmt.Errorf("none of %d sites has a secret: there is nothing to compare", len(all.Objects))
	}
	return count, nil
}

// podsOf counts pods by their sites.
func (o *operator) podsOf(ctx context.Context) (map[string]int64, error) {
	pods, err := o.cluster.Truth(ctx, core.WithResource("pods").GroupResource())
	if err != nil {
		return nil, err
	}
	count := map[string]int64{}
	for _, p := range pods.Objects {
		count[p.Meta.GetNamespace()+"/"+p.Meta.GetLabels()[siteLabel]]++
	}
	return count, nil
}

// compareSite checks what the operator guarantees about a site's deployment.
func compareSite(site *unstructured.Unstructured, d *appsv1.Deployment, sum string) error {
	status, _, _ := unstructured.NestedString(site.Object, "status", "checksum")
	image, _, _ := unstructured.NestedString(site.Object, "spec", "image")
	replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas")
	rolledOut := d.Spec.Template.Annotations["example.watershed.dev/secret"]
	owner := metav1.GetControllerOf(d)
	switch {
	case status != sum || rolledOut != sum:
		return fmt.Errorf("checksum %s, rolled out is %s, the secret's is %s", status, rolledOut, sum)
	case d.Spec.Template.Spec.Containers[0].Image != image:
		return fmt.Errorf("image %s, rolled out is %s", image, d.Spec.Template.Spec.Containers[0].Image)
	case int64(*d.Spec.Replicas) != replicas:
		return fmt.Errorf("%d replicas, the deployment has %d", replicas, *d.Spec.Replicas)
	case owner == nil || owner.UID != site.GetUID():
		return fmt.Errorf("its uid is %s, the deployment is of %v", site.GetUID(), owner)
	}
	return nil
}

// nudge changes every secret, which makes the operator reconcile every site again.
func (o *operator) nudge(ctx context.Context) error {
	for _, namespace := range namespaces {
		secrets, err := o.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range secrets.Items {
			s.Data = map[string][]byte{"password": []byte("last " + s.ResourceVersion)}
			if _, err := o.client.CoreV1().Secrets(namespace).Update(ctx, &s, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("nudge: %w", err)
			}
		}
	}
	return nil
}

// checksum returns the checksum of a secret's content that the operator computes.
func checksum(s *corev1.Secret) string {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		fmt.Fprintf(h, "%s=%d:", key, len(s.Data[key]))
		h.Write(s.Data[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
