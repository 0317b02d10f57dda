// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/valuecache"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/reflector"
)

// BenchmarkLife_facets lists pods and follows changes of each, with and without facets, and reports the
// CPU of the process for each state.
func BenchmarkLife_facets(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprint(with), func(b *testing.B) {
			for b.Loop() {
				facetLife(b, with)
			}
		})
	}
}

func facetLife(b *testing.B, with bool) {
	b.Helper()
	const changes = 40_000
	source := newChurnSource(b, changes)
	opts := Options{Packed: true, Values: valuecache.New(valuecache.Options{Recent: 1 << 20}),
		Reflector: reflector.Options{ListOnly: true, Logger: slog.New(slog.DiscardHandler)}}
	if with {
		c, err := facets.NewCatalog([]string{facets.Defaults})
		expect.NoError(b, err)
		opts.Facets = func(context.Context) *facets.Plan {
			return c.Plan(schema.GroupResource{Resource: "pods"}, wiretest.PodKind.GroupVersionKind, nil)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	e := New(source, opts)
	first := cpu(b)
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	<-e.Current().Synced()
	synced := cpu(b)
	<-source.began
	began := cpu(b)
	<-source.ran
	b.ReportMetric(float64((synced-first).Microseconds())/churnPods, "cpu-us/listed")
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/changes, "cpu-us/change")
	cancel()
	running.Wait()
}
