// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestList_isListAllByNamespace compares List with client-go's function, on both kinds of
// indexers, often enough that the engine has a column of the label.
func TestList_isListAllByNamespace(t *testing.T) {
	w := kubetest.Workload{Seed: 2}
	pods := make([]*corev1.Pod, 1000)
	theirs := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	for i := range pods {
		pods[i] = w.Pod(i)
		if err := theirs.Add(pods[i]); err != nil {
			t.Fatal(err)
		}
	}
	informer := compat.NewInformer(&compat.Options{Logger: quiet.Logger})(podSource(t, pods...), &corev1.Pod{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	synced(t, informer)
	const label = "app.kubernetes.io/name"
	names := func(indexer cache.Indexer, list func(cache.Indexer, string, labels.Selector, cache.AppendFunc) error,
		namespace string, selector labels.Selector) []string {
		found := []string{}
		if err := list(indexer, namespace, selector, func(obj any) {
			found = append(found, obj.(*corev1.Pod).Namespace+"/"+obj.(*corev1.Pod).Name)
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		return found
	}
	for range 4 {
		for _, namespace := range []string{"", pods[7].Namespace, "none"} {
			for _, selector := range []labels.Selector{
				labels.Everything(),
				labels.SelectorFromSet(labels.Set{label: pods[7].Labels[label]}),
				labels.SelectorFromSet(labels.Set{label: "none"}),
			} {
				want := names(theirs, cache.ListAllByNamespace, namespace, selector)
				expect.Equal(t, names(informer.GetIndexer(), compat.List, namespace, selector), want)
				expect.Equal(t, names(theirs, compat.List, namespace, selector), want)
			}
		}
	}
}
