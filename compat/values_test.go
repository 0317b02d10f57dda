// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// BenchmarkGet_together has eight goroutines that read the same 1,000 pods.
func BenchmarkGet_together(b *testing.B) {
	w := kubetest.Workload{Seed: 1}
	pods := make([]*corev1.Pod, 1000)
	for n := range pods {
		pods[n] = w.Pod(n)
	}
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for name, x := range map[string]cache.Indexer{
		"client-go": cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers),
		"ours":      compat.NewInformer(quiet)(&cache.ListWatch{}, &corev1.Pod{}, 0, indexers).GetIndexer(),
	} {
		for _, p := range pods {
			if err := x.Add(p); err != nil {
				b.Fatal(err)
			}
		}
		lister := corelisters.NewPodLister(x)
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(4) // of 2 CPUs
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					p := pods[n*7%len(pods)]
					if _, err := lister.Pods(p.Namespace).Get(p.Name); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
