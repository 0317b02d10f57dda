// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kubetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// slowLoad is how long loading 30,000 pods may take. Ten seconds are usual.
const slowLoad = 60 * time.Second

func TestLoadPods(t *testing.T) {
	const n = loadedPods
	c := kubetest.Start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := kubetest.Workload{}

	begin := time.Now()
	if err := c.LoadPods(ctx, w, n); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	t.Logf("%d pods loaded in %s", n, took.Round(10*time.Millisecond))
	if took > slowLoad {
		t.Errorf("loading took %s, more than %s", took, slowLoad)
	}

	pods := clientFor(t, c.Config()).CoreV1().Pods("")
	page, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	if page.RemainingItemCount != nil {
		left = *page.RemainingItemCount
	}
	if left+1 != n {
		t.Errorf("the API server has %d pods, want %d", left+1, n)
	}
	begin = time.Now()
	truth, err := c.Truth(ctx, schema.GroupResource{Resource: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d pods read from etcd and decoded in %s", len(truth.Objects), time.Since(begin).Round(10*time.Millisecond))
	if len(truth.Objects) != n {
		t.Errorf("etcd has %d pods, want %d", len(truth.Objects), n)
	}
	out, err := c.Kubectl(ctx, "get", "namespaces", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out, "namespace/team-"); got != 100 {
		t.Errorf("kubectl shows %d namespaces of teams, want 100", got)
	}

	// A pod is read as it was made, and a change of it is visible.
	want := w.Pod(1_234)
	got, err := clientFor(t, c.Config()).CoreV1().Pods(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := got.ResourceVersion
	got.ResourceVersion = ""
	if olderThan(t, "v1.33.0") {
		// An older server keeps the stored bytes, but reads only the fields that it
		// knows.
		want.Status.ObservedGeneration = 0
		for i := range want.Status.Conditions {
			want.Status.Conditions[i].ObservedGeneration = 0
		}
	}
	if g, w := asJSON(t, got), asJSON(t, want); g != w {
		t.Errorf("pod 1234 is\n%s\nwant\n%s", g, w)
	}
	want.Labels["changed"] = "yes"
	if err := c.PutPods(ctx, want); err != nil {
		t.Fatal(err)
	}
	got, err = clientFor(t, c.Config()).CoreV1().Pods(want.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["changed"] != "yes" || got.ResourceVersion == version {
		t.Errorf("the changed pod has labels %v at %s, was at %s", got.Labels, got.ResourceVersion, version)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWorkload_isRealisticAndTheSameEveryTime(t *testing.T) {
	w := kubetest.Workload{Seed: 7, Namespaces: 5}
	names, uids, namespaces := map[string]bool{}, map[string]bool{}, map[string]bool{}
	const n = loadedPods
	for i := range n {
		p := w.Pod(i)
		if i%100 == 0 && !reflect.DeepEqual(p, w.Pod(i)) {
			t.Fatalf("pod %d differs from itself", i)
		}
		names[p.Namespace+"/"+p.Name], uids[string(p.UID)], namespaces[p.Namespace] = true, true, true
		if ns := w.Namespace(i).Name; ns != p.Namespace {
			t.Fatalf("pod %d is in %s, its namespace is %s", i, p.Namespace, ns)
		}
	}
	if len(names) != n || len(uids) != n || len(namespaces) != 5 {
		t.Errorf("%d pods have %d names and %d uids in %d namespaces, want 5", n, len(names), len(uids),
			len(namespaces))
	}
	other := kubetest.Workload{Seed: 8, Namespaces: 5}.Pod(3)
	if p := w.Pod(3); p.Name != other.Name || p.UID == other.UID {
		t.Errorf("by another seed pod %s %s is %s %s, want the same name and another uid", p.Name, p.UID, other.Name,
			other.UID)
	}

	p := w.Pod(3)
	shape := fmt.Sprint(len(p.OwnerReferences), len(p.Spec.Containers), len(p.Spec.Containers[0].Env),
		len(p.Spec.Volumes),
		len(p.Status.Conditions), len(p.Status.ContainerStatuses), len(p.Spec.Tolerations), len(p.ManagedFields))
	if shape != "1 2 8 3 5 2 2 2" {
		t.Errorf("owners, containers, env, volumes, conditions, statuses, tolerations, managers: %s", shape)
	}
	for _, m := range p.ManagedFields {
		if !json.Valid(m.FieldsV1.GetRawBytes()) {
			t.Errorf("the fields of %s are not JSON: %s", m.Manager, m.FieldsV1.GetRawBytes())
		}
	}
	proto, err := kubetest.EncodePod(p)
	if err != nil {
		t.Fatal(err)
	}
	j := len(asJSON(t, p))
	t.Logf("a pod has %d bytes as JSON, %d as protobuf", j, len(proto))
	if j < 6800 || j > 8400 || len(proto) < 4200 || len(proto) > 5200 {
		t.Errorf("a pod has %d bytes as JSON and %d as protobuf, want about 7600 and 4700", j, len(proto))
	}
}

func BenchmarkWorkload_Pod(b *testing.B) {
	var w kubetest.Workload
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w.Pod(i)
	}
}
