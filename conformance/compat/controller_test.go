// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/watershed-project/watershed/internal/expect"
)

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// face is a type that config maps can be read as.
type face struct {
	name string
	one  func() client.Object
	list func() client.ObjectList
}

var faces = []face{
	{
		"typed", func() client.Object { return &corev1.ConfigMap{} }, func() client.ObjectList {
			return &corev1.ConfigMapList{}
		},
	},
	{"unstructured", func() client.Object {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(configMapKind)
		return u
	}, func() client.ObjectList {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return u
	}},
	{"metadata", func() client.Object {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(configMapKind)
		return m
	}, func() client.ObjectList {
		m := &metav1.PartialObjectMetadataList{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return m
	}},
}

// items returns the items of any list as text.
func items(t *testing.T, list client.ObjectList) string {
	t.Helper()
	var objs []client.Object
	switch l := list.(type) {
	case *corev1.ConfigMapList:
		for i := range l.Items {
			objs = append(objs, &l.Items[i])
		}
	case *unstructured.UnstructuredList:
		for i := range l.Items {
			objs = append(objs, &l.Items[i])
		}
	case *metav1.PartialObjectMetadataList:
		for i := range l.Items {
			objs = append(objs, &l.Items[i])
		}
	}
	return fmt.Sprintf("%d objects\n%s", len(objs), asText(t, objs...))
}

// TestReal_controllerRuntime reads through controller-runtime's cache, in every possible
// way.
func TestReal_controllerRuntime(t *testing.T) {
	w := newConfigCluster(t)
	for _, f := range faces {
		t.Run(f.name, func(t *testing.T) {
			compare(t, func(t *testing.T, k kindOfCache) []string {
				c, m := w.cache(t, k, ctrlcache.Options{})
				var results []string
				for field, values := range map[string]client.IndexerFunc{
					"metadata.name": func(obj client.Object) []string { return []string{obj.GetName()} },
					"color":         func(obj client.Object) []string { return []string{obj.GetLabels()["color"]} },
				} {
					if err := c.IndexField(t.Context(), f.one(), field, values); err != nil {
						t.Fatal(err)
					}
				}
				get := func(namespace, name string, opts ...client.GetOption) {
					t.Helper()
					obj := f.one()
					err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj, opts...)
					if err != nil && !apierrors.IsNotFound(err) {
						t.Fatal(err)
					}
					results = append(results, fmt.Sprint(err)+asText(t, obj))
				}
				get("one", "m1")
				get("two", "m4")
				get("one", "none")
				list := func(opts ...client.ListOption) {
					t.Helper()
					l := f.list()
					err := c.List(t.Context(), l, opts...)
					results = append(results, fmt.Sprint(err)+items(t, l))
				}
				list()
				list(client.InNamespace("two"))
				list(client.InNamespace("none"))
				list(client.MatchingLabels{"color": "red"})
				list(client.InNamespace("one"), client.MatchingLabels{"color": "red"})
				list(client.MatchingFields{"metadata.name": "m3"})
				list(client.InNamespace("one"), client.MatchingFields{"metadata.name": "m3"})
				list(client.InNamespace("one"), client.MatchingFields{"color": "green"})
				list(client.InNamespace("one"), client.MatchingFieldsSelector{
					Selector: fields.SelectorFromSet(fields.Set{"color": "green", "metadata.name": "m4"}),
				})
				list(client.MatchingFields{"nothing": "x"})
				list(client.Continue("x"))
				l := f.list()
				if err := c.List(t.Context(), l, client.Limit(3)); err != nil {
					t.Fatal(err)
				}
				results = append(results, items(t, l)[:9]) // any three
				// controller-runtime edits the watches of metadata, so its client reads them.
				if n, tapped := m.read.Load(), k.tapped && f.name != "metadata"; tapped != (n == 0) {
					t.Errorf("the client read %d bytes of lists and watches", n)
				}
				return results
			})
		})
	}
}

// TestReal_controllerRuntimeOptions: selectors, namespaces and transforms by type, and
// objects that are not copied.
func TestReal_controllerRuntimeOptions(t *testing.T) {
	w := newConfigCluster(t)
	yes := true
	red := labels.SelectorFromSet(labels.Set{"color": "red"})
	strip := func(obj any) (any, error) {
		m := obj.(client.Object)
		m.SetManagedFields(nil)
		m.SetAnnotations(map[string]string{"transformed": "yes"})
		return obj, nil
	}
	for name, opts := range map[string]ctrlcache.Options{
		"labels": {ByObject: map[client.Object]ctrlcache.ByObject{&corev1.ConfigMap{}: {Label: red}}},
		"fields": {
			ByObject: map[client.Object]ctrlcache.ByObject{
				&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.name", "m2")},
			},
		},
		"namespaces": {
			ByObject: map[client.Object]ctrlcache.ByObject{
				&corev1.ConfigMap{}: {Namespaces: map[string]ctrlcache.Config{"one": {}, "two": {LabelSelector: red}}},
			},
		},
		"transform": {ByObject: map[client.Object]ctrlcache.ByObject{&corev1.ConfigMap{}: {Transform: strip}}},
		"default transform": {
			DefaultTransform:  ctrlcache.TransformStripManagedFields(),
			DefaultNamespaces: map[string]ctrlcache.Config{"two": {}},
		},
		"not copied": {DefaultUnsafeDisableDeepCopy: &yes, DefaultNamespaces: map[string]ctrlcache.Config{"one": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, func(t *testing.T, k kindOfCache) []string {
				c, _ := w.cache(t, k, opts)
				l := &corev1.ConfigMapList{}
				if err := c.List(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				m := &corev1.ConfigMap{}
				err := c.Get(t.Context(), client.ObjectKey{Namespace: "one", Name: "m1"}, m)
				if err != nil && !apierrors.IsNotFound(err) && name != "default transform" {
					t.Fatal(err)
				}
				if opts.DefaultUnsafeDisableDeepCopy != nil {
					// Objects that are not copied are those of the store, and in ours
					// they have their kind.
					for i := range l.Items {
						l.Items[i].TypeMeta = metav1.TypeMeta{}
					}
					m.TypeMeta = metav1.TypeMeta{}
				}
				return []string{items(t, l), fmt.Sprint(err), asText(t, m)}
			})
		})
	}
}

// TestReal_controllerRuntimeInformers: handlers are called, and an informer that is
// removed leaves neither a watch nor memory.
func TestReal_controllerRuntimeInformers(t *testing.T) {
	w := newConfigCluster(t)
	const size, count = 32 << 10, 300
	for n := range count {
		w.create(t, filled("one", fmt.Sprintf("big%d", n), size))
	}
	for _, k := range caches {
		t.Run(k.name, func(t *testing.T) {
			c, m := w.cache(t, k, ctrlcache.Options{})
			before := heap()
			i, err := c.GetInformer(t.Context(), &corev1.ConfigMap{})
			if err != nil {
				t.Fatal(err)
			}
			events := make(chan string, 2*count+100)
			r, err := i.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
				AddFunc: func(obj any, initial bool) {
					if !initial {
						events <- "add " + obj.(*corev1.ConfigMap).Data["color"]
					}
				},
				UpdateFunc: func(old, now any) {
					events <- "update " + old.(*corev1.ConfigMap).Data["color"] + " " +
						now.(*corev1.ConfigMap).Data["color"]
				},
				DeleteFunc: func(obj any) { events <- "delete " + obj.(*corev1.ConfigMap).Data["color"] },
			})
			if err != nil {
				t.Fatal(err)
			}
			expect.Soon(t, "the handler's sync", r.HasSynced)
			w.create(t, configMap("two", "live", "white"))
			w.update(t, "two", "live", "black")
			w.remove(t, "two", "live")
			for _, want := range []string{"add white", "update white black", "delete black"} {
				select {
				case got := <-events:
					if got != want {
						t.Fatalf("it was told %s, want %s", got, want)
					}
				case <-time.After(patience):
					t.Fatalf("it was not told %s", want)
				}
			}
			if n := m.open.Load(); n != 1 {
				t.Errorf("%d watches are open", n)
			}
			if with := heap(); with < before+size*count/2 {
				t.Errorf("the heap has grown from %d to %d: the test is blind", before, with)
			}
			if err := c.RemoveInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
				t.Fatal(err)
			}
			i, r = nil, nil
			expect.Soon(t, "the end of the watch", func() bool { return m.open.Load() == 0 })
			expect.Soon(t, "the memory", func() bool { return heap() < before+size*count/4 })
			// The informer is created again for the next read.
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "one", Name: "m1"},
				&corev1.ConfigMap{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestReal_factory uses client-go's own factory, with our informer for one type.
func TestReal_factory(t *testing.T) {
	w := newConfigCluster(t)
	compare(t, func(t *testing.T, k kindOfCache) []string {
		cfg, m := w.config(k)
		hc, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer hc.CloseIdleConnections()
		clients, err := kubernetes.NewForConfigAndClient(cfg, hc)
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(clients, 0)
		stop := make(chan struct{})
		defer factory.Shutdown()
		defer close(stop)
		if k.subject != nil {
			factory.InformerFor(&corev1.ConfigMap{},
				func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
					lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "configmaps", "",
						fields.Everything())
					return k.subject(lw, &corev1.ConfigMap{}, 0, cache.Indexers{
						cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
					})
				})
		}
		lister := factory.Core().V1().ConfigMaps().Lister()
		factory.Start(stop)
		for kind, ok := range factory.WaitForCacheSync(stop) {
			if !ok {
				t.Fatalf("%v did not sync", kind)
			}
		}
		if n := m.read.Load(); k.tapped != (n == 0) {
			t.Errorf("the client read %d bytes of lists and watches", n)
		}
		var results []string
		for _, namespace := range []string{"one", "two", "none"} {
			found, err := lister.ConfigMaps(namespace).List(labels.SelectorFromSet(labels.Set{"color": "green"}))
			if err != nil {
				t.Fatal(err)
			}
			objs := []client.Object{}
			for _, m := range found {
				m = m.DeepCopy()
				m.TypeMeta = metav1.TypeMeta{}
				objs = append(objs, m)
			}
			results = append(results, asText(t, objs...))
		}
		_, err = lister.ConfigMaps("one").Get("none")
		return append(results, fmt.Sprint(err))
	})
}
