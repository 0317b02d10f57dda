// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamiclister"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// newPods is a constructor for InformerFor that returns our pod informer.
func newPods(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, opts)
		},
	}, client)
	return compat.NewInformer(quiet)(lw, &corev1.Pod{}, resync, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
}

// watching waits until the watch of an informer is open. An informer is synced before
// that, and a fake client, which has no versions, loses the changes in between. The fake
// records a watch and opens it under one lock.
func watching(t *testing.T, client *clienttesting.Fake) {
	t.Helper()
	expect.Soon(t, "the watch", func() bool {
		return slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool {
			return a.GetVerb() == "watch"
		})
	})
}

// TestFakeClientset uses a factory with our pod informer. Its generated informer and
// lister do not notice the difference.
func TestFakeClientset(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := fake.NewClientset(pod("a", "1"), labelled(pod("b", "1"), "x"))
	factory := informers.NewSharedInformerFactory(client, 0)
	defer factory.Shutdown()
	defer cancel()
	ours := factory.InformerFor(&corev1.Pod{}, newPods)
	pods := factory.Core().V1().Pods()
	if pods.Informer().GetIndexer() != ours.GetIndexer() {
		t.Fatal("the generated informer is not ours")
	}
	j := &recorder{}
	join(t, pods.Informer(), j)
	typed := make(chan *corev1.Pod, 10)
	added := cache.TypedResourceEventHandlerFuncs[*corev1.Pod]{AddFunc: func(p *corev1.Pod) { typed <- p }}
	if _, err := cache.NewTypedSharedIndexInformer[*corev1.Pod](ours).AddTypedEventHandler(added); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("%v did not sync", kind)
		}
	}
	j.expect(t, "add a/1 true", "add b/1=x true")
	if p := <-typed; p.Namespace != "a" || p.Name != "1" {
		t.Errorf("the typed handler received %v", p)
	}
	found, err := pods.Lister().Pods("b").List(labels.Everything())
	if err != nil || !slices.Equal(names(found), []string{"b/1"}) {
		t.Errorf("pods in b: %q, %v", names(found), err)
	}

	watching(t, &client.Fake)
	if _, err := client.CoreV1().Pods("a").Create(ctx, pod("a", "2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("a").Update(ctx, labelled(pod("a", "2"), "y"),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("a").Delete(ctx, "1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.expect(t, "add a/2 false", "update a/2 a/2=y", "delete a/1")
	if p, err := pods.Lister().Pods("a").Get("2"); err != nil || p.Labels["label"] != "y" {
		t.Errorf("a/2: %v, %v", p, err)
	}
}

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func unstructuredConfigMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "a", "name": name},
		"data":     map[string]any{"key": value},
	}}
}

func TestFakeDynamicClient(t *testing.T) {
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, unstructuredConfigMap("1", "x"))
	resource := client.Resource(configMaps)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, opts)
		},
	}, client)
	i := compat.NewInformer(quiet)(lw, &unstructured.Unstructured{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	synced(t, i)
	watching(t, &client.Fake)
	if _, err := resource.Namespace("a").Create(t.Context(), unstructuredConfigMap("2", "y"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	lister := dynamiclister.New(i.GetIndexer(), configMaps)
	expect.Soon(t, "the second one", func() bool {
		list, err := lister.Namespace("a").List(labels.Everything())
		return err == nil && len(list) == 2
	})
	got, err := lister.Namespace("a").Get("2")
	if err != nil {
		t.Fatal(err)
	}
	if value, _, _ := unstructured.NestedString(got.Object, "data", "key"); value != "y" ||
		got.GetKind() != "ConfigMap" {
		t.Errorf("it is %v", got)
	}
}

func TestFakeMetadataClient(t *testing.T) {
	known := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(known); err != nil {
		t.Fatal(err)
	}
	object := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "1", Labels: map[string]string{"label": "x"}},
	}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	client := metadatafake.NewSimpleMetadataClient(known, object)
	resource := client.Resource(configMaps)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, opts)
		},
	}, client)
	i := compat.NewInformer(quiet)(lw, &metav1.PartialObjectMetadata{}, 0, nil)
	synced(t, i)
	obj, ok, err := i.GetStore().GetByKey("a/1")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := obj.(*metav1.PartialObjectMetadata); got.Labels["label"] != "x" || got.Kind != "ConfigMap" {
		t.Errorf("it is %v", got)
	}
}
