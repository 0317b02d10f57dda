// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/kube"
)

// versionDigits limits a version in a metric to the 15 last digits, as in client-go: a float
// has no more.
const versionDigits = 1_000_000_000_000_000

// newMeter returns a function that updates client-go's metrics of an informer after each
// batch, or nil if the informer has none. A batch costs three updates of metrics.
func newMeter(
	name *cache.InformerName, provider cache.InformerMetricsProvider, resource schema.GroupVersionResource,
) func(engine.BatchStats) {
	if name == nil || provider == nil {
		return nil
	}
	id := name.WithResource(resource)
	if !id.Reserved() {
		return nil // another informer has the metrics
	}
	queued := provider.NewQueuedItemMetric(id)
	latency := provider.NewProcessingLatencyMetric(id)
	version := provider.NewStoreResourceVersionMetric(id)
	return func(b engine.BatchStats) {
		queued.Set(float64(b.Queued))
		latency.Observe(b.Took.Seconds())
		if b.Version != 0 {
			version.Set(float64(b.Version % versionDigits))
		}
	}
}

// resource returns the resource of an informer's objects, as far as the example shows it. A
// type that is not in k8s.io/api has the resource that its kind usually has.
func (p *prototype) resource(example runtime.Object) schema.GroupVersionResource {
	if resource, _, ok := kube.ResourceOf(example); ok {
		return resource
	}
	gvk := schema.GroupVersionKind{}
	switch {
	case p.kind != nil:
		gvk = p.kind.GroupVersionKind
	case example != nil:
		gvk = example.GetObjectKind().GroupVersionKind()
	}
	if gvk.Empty() {
		return schema.GroupVersionResource{}
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return resource
}
