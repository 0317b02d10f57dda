// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package metrics_test

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/metrics"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// source has a few pods and never changes.
type source struct{ pods []*wire.Object }

func (s source) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	for _, o := range s.pods {
		if err := each(o); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: "7"}, nil
}

func (s source) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return silence{ctx}, nil
}

func (s source) Served(context.Context) (bool, error) { return true, nil }

type silence struct{ ctx context.Context }

func (s silence) Next() (reflector.Event[*wire.Object], error) {
	<-s.ctx.Done()
	return reflector.Event[*wire.Object]{}, s.ctx.Err()
}

func (s silence) Close() error { return nil }

func TestCollector(t *testing.T) {
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	var src source
	for _, name := range []string{"a", "b", "c"} {
		o, err := wire.Encode(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x", ResourceVersion: "5"},
		}, wire.Protobuf, kind)
		if err != nil {
			t.Fatal(err)
		}
		src.pods = append(src.pods, o)
	}
	var report watershed.Report
	opts := &watershed.SourceOptions[*corev1.Pod]{Report: &report, Reflector: reflector.Options{ListOnly: true}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector(&report))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	// Two informers with the same labels are added up.
	for range 2 {
		i := watershed.FromSource(src, opts)
		i.Handle(watershed.Handler[*corev1.Pod]{Name: "h", Panicked: func(any) {}, Add: func(p *corev1.Pod, _ bool) {
			if p.Name == "b" {
				panic(p.Name)
			}
		}})
		go func() { ended <- i.Run(ctx) }()
		if err := i.WaitForSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	const want = `# HELP watershed_objects Objects that are kept.
# TYPE watershed_objects gauge
watershed_objects{cluster="",resource=""} 6
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "watershed_objects"); err != nil {
		t.Error(err)
	}
	expect.Soon(t, "handled", func() bool {
		return gathered(t, registry, "watershed_handler_calls_total", "handler", "h") == 4 &&
			gathered(t, registry, "watershed_handler_panics_total", "handler", "h") == 2
	})
	expect.Equal(t, gathered(t, registry, "watershed_informer_relists_total", "cause", "begun"), 2)
	expect.Equal(t, gathered(t, registry, "watershed_values_decoded_total", "cluster", ""), 3)
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 17+5+5 {
		t.Errorf("%d series, %v", n, err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if sum := report.Stats()[0].Bytes(); sum < 300 || sum > 10_000 {
		t.Errorf("three small pods take %d bytes", sum)
	}
	cancel()
	<-ended
	<-ended
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
		t.Errorf("%d series of informers that have stopped, %v", n, err)
	}
}
