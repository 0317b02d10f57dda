// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/kubetest"
)

// TestPacking_isSharedByTheInformersOfAConstructor covers a cache of many namespaces,
// which has many informers of one kind.
func TestPacking_isSharedByTheInformersOfAConstructor(t *testing.T) {
	report := &watershed.Report{}
	create := compat.NewInformer(&compat.Options{Report: report, Logger: quiet.Logger})
	w := kubetest.Workload{Seed: 1}
	for n := range 10 {
		pods := make([]*corev1.Pod, 300)
		for k := range pods {
			pods[k] = w.Pod(k)
			pods[k].Namespace = fmt.Sprint("ns", n)
		}
		synced(t, create(podSource(t, pods...), &corev1.Pod{}, 0, cache.Indexers{}))
	}
	var bytes int64
	for _, s := range report.Stats() {
		bytes += s.DictionaryBytes
	}
	// One takes about 225 KB, and some that were replaced still have objects.
	if bytes == 0 || bytes > 1200<<10 {
		t.Errorf("%d KB of dictionaries, want those of one kind", bytes>>10)
	}
}
