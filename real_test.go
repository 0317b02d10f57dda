// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/mod/semver"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
	"github.com/watershed-project/watershed/internal/kubetest/binaries"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// connect returns a cluster whose idle connections are closed when the test ends.
func connect(t *testing.T, cfg *rest.Config) *kube.Cluster {
	t.Helper()
	c, err := kube.FromConfig(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func informer[T wire.Pointer[P], P any](
	t *testing.T, c *kube.Cluster, opts *watershed.Options[T],
) *watershed.Informer[T] {
	t.Helper()
	i, err := watershed.New(c, opts)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// synced waits for an informer, and reports its status if that takes too long.
func synced[T any](t *testing.T, i *watershed.Informer[T], within time.Duration) {
	t.Helper()
	select {
	case <-i.Synced():
	case <-time.After(within):
		t.Fatalf("not synced after %v: %+v", within, i.Status())
	}
}

// truth returns the objects in etcd, by the keys that informers use.
func truth(t *testing.T, c *kubetest.Cluster, resource string) (map[string]kubetest.Stored, int64) {
	t.Helper()
	tr, err := c.Truth(t.Context(), schema.GroupResource{Resource: resource})
	if err != nil {
		t.Fatal(err)
	}
	objects := make(map[string]kubetest.Stored, len(tr.Objects))
	for _, o := range tr.Objects {
		key := o.Meta.GetName()
		if o.Meta.GetNamespace() != "" {
			key = o.Meta.GetNamespace() + "/" + key
		}
		objects[key] = o
	}
	return objects, tr.Revision
}

// different returns how an informer's object differs from etcd's, or "".
func different(got runtime.Object, want kubetest.Stored) string {
	switch got := got.(type) {
	case *unstructured.Unstructured:
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want.Object)
		if err != nil {
			return err.Error()
		}
		was := &unstructured.Unstructured{Object: fields}
		was.SetGroupVersionKind(got.GroupVersionKind())
		if !equality.Semantic.DeepEqual(got.Object, was.Object) {
			return "unstructured content"
		}
	case *metav1.PartialObjectMetadata:
		meta := want.Meta.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
		if !equality.Semantic.DeepEqual(got.ObjectMeta, *meta) {
			return "metadata"
		}
	default:
		bare := got.DeepCopyObject()
		bare.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		was := want.Object.DeepCopyObject()
		was.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if !equality.Semantic.DeepEqual(bare, was) {
			return "typed content"
		}
	}
	if got.GetObjectKind().GroupVersionKind().Empty() {
		return "no kind"
	}
	return ""
}

// differences compares an informer with etcd. It returns nothing if they are equal.
func differences[T any](
	i *watershed.Informer[T], want map[string]kubetest.Stored, content func(T, kubetest.Stored) string,
) []string {
	var found []string
	snap, n := i.Snapshot(), 0
	for key, o := range snap.Raw() {
		n++
		stored, ok := want[key]
		if !ok {
			found = append(found, key+" is not in etcd")
			continue
		}
		if o.Version() != uint64(stored.Revision) {
			found = append(found, fmt.Sprintf("%s is at %d, in etcd at %d", key, o.Version(), stored.Revision))
			continue
		}
		value, ok := snap.Get(key)
		if !ok {
			found = append(found, key+" cannot be decoded")
		} else if diff := content(value, stored); diff != "" {
			found = append(found, key+": "+diff)
		}
	}
	if n != len(want) {
		found = append(found, fmt.Sprintf("%d objects, in etcd %d", n, len(want)))
	}
	return found[:min(len(found), 5)]
}

func objects[T runtime.Object](got T, want kubetest.Stored) string { return different(got, want) }

func raw(got *wire.Object, want kubetest.Stored) string {
	typed, err := wire.DecodeFresh[*corev1.Pod](got)
	if err != nil {
		return err.Error()
	}
	return different(typed, want)
}

// asServed removes fields that the tests put into etcd but an older server does not
// have.
func asServed(p *corev1.Pod) {
	version := os.Getenv(binaries.VersionVariable)
	if version == "" || semver.Compare(version, "v1.33.0") >= 0 {
		return
	}
	p.Status.ObservedGeneration = 0
	for i := range p.Status.Conditions {
		p.Status.Conditions[i].ObservedGeneration = 0
	}
}

// TestReal_manyPodsEqualEtcd reads pods in every form. $WATERSHED_PODS is their number.
func TestReal_manyPodsEqualEtcd(t *testing.T) {
	c := kubetest.Start(t, nil)
	n := 6_000
	if size := os.Getenv("WATERSHED_PODS"); size != "" {
		n, _ = strconv.Atoi(size)
	}
	if err := c.LoadPods(t.Context(), kubetest.Workload{Seed: 1}, n); err != nil {
		t.Fatal(err)
	}
	want, _ := truth(t, c, "pods")
	for _, o := range want {
		asServed(o.Object.(*corev1.Pod))
	}
	cluster := connect(t, c.Config())
	pods := corev1.SchemeGroupVersion.WithResource("pods")

	check := func(name string, run func(context.Context) error, wait func(), compare func() []string) {
		began := time.Now()
		stop := running(t, run)
		wait()
		t.Logf("%s: %d pods synced in %v", name, n, time.Since(began).Round(time.Millisecond))
		expect.Eventually(t, time.Minute, func() error {
			if diff := compare(); len(diff) > 0 {
				return fmt.Errorf("%s: %v", name, diff)
			}
			return nil
		})
		stop()
	}
	typed := informer[*corev1.Pod](t, cluster, nil)
	check("typed", typed.Run, func() { synced(t, typed, time.Minute) },
		func() []string { return differences(typed, want, objects[*corev1.Pod]) })
	bytes := informer(t, cluster, &watershed.Options[*wire.Object]{Resource: pods})
	check("raw", bytes.Run, func() { synced(t, bytes, time.Minute) },
		func() []string { return differences(bytes, want, raw) })
	meta := informer(t, cluster, &watershed.Options[*metav1.PartialObjectMetadata]{Resource: pods})
	check("metadata", meta.Run, func() { synced(t, meta, time.Minute) },
		func() []string { return differences(meta, want, objects[*metav1.PartialObjectMetadata]) })
	free := informer(t, cluster, &watershed.Options[*unstructured.Unstructured]{Resource: pods})
	check("unstructured", free.Run, func() { synced(t, free, 2*time.Minute) },
		func() []string { return differences(free, want, objects[*unstructured.Unstructured]) })
	listed := informer(t, cluster, &watershed.Options[*corev1.Pod]{Reflector: reflector.Options{ListOnly: true}})
	check("listed in pages", listed.Run, func() { synced(t, listed, time.Minute) },
		func() []string { return differences(listed, want, objects[*corev1.Pod]) })
}

// TestReal_stopFreesMemory checks that a stopped informer frees its memory, which other
// informers are known not to do.
func TestReal_stopFreesMemory(t *testing.T) {
	c := kubetest.Start(t, nil)
	if err := c.LoadPods(t.Context(), kubetest.Workload{Seed: 1}, 30_000); err != nil {
		t.Fatal(err)
	}
	cluster := connect(t, c.Config())
	pods := informer[*corev1.Pod](t, cluster, nil)
	nodes := watershed.IndexBy(pods, byNode)
	added := 0
	pods.Handle(watershed.Handler[*corev1.Pod]{Add: func(*corev1.Pod, bool) { added++ }})
	cycle := func() (with int64) {
		stop := running(t, pods.Run)
		synced(t, pods, time.Minute)
		// The first list may be of any version, because the server is still loading.
		expect.Eventually(t, time.Minute, func() error {
			if n := pods.Len(); n != 30_000 {
				return fmt.Errorf("%d pods", n)
			}
			return nil
		})
		with = liveHeap()
		stop()
		cluster.CloseIdleConnections()
		return with
	}
	cycle() // makes the allocations that stay
	added = 0
	before := liveHeap()
	with := cycle()
	after := liveHeap()
	t.Logf("live heap: before %.1f MB, with 30,000 pods %.1f MB, after stop %.1f MB", float64(before)/1e6,
		float64(with)/1e6, float64(after)/1e6)
	if after > before+before/20 {
		t.Errorf("after stop the heap is %d bytes, before it was %d", after, before)
	}
	if with < before+10e6 {
		t.Errorf("with 30,000 pods the heap was %d bytes, before %d: the test shows nothing", with, before)
	}
	expect.Equal(t, pods.Len(), 0)
	for range nodes.Values() {
		t.Error("the index is not empty")
		break
	}
	cycle()
}
