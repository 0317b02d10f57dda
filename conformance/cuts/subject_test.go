// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package cuts

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/fleet/directory"
	"github.com/watershed-project/watershed/kube"
)

// subject is an informer of pods that runs for the duration of a test.
type subject struct {
	name  string
	start func(t *testing.T, cfg *rest.Config)
}

// subjects are the informers that are compared, the reference first.
var subjects = []subject{
	{"client-go", func(t *testing.T, cfg *rest.Config) { runInformer(t, cfg, cache.NewSharedIndexInformer) }},
	{"watershed", runLibrary},
	{"compat", func(t *testing.T, cfg *rest.Config) { runInformer(t, cfg, newInformer) }},
	{"compat, tapped", func(t *testing.T, cfg *rest.Config) {
		cfg.Wrap(compat.Tap)
		runInformer(t, cfg, newInformer)
	}},
	{"fleet", runFleet},
}

var (
	quiet       = slog.New(slog.DiscardHandler)
	newInformer = compat.NewInformer(&compat.Options{Logger: quiet})
)

// run runs a function until the test ends, and waits until the copy is complete.
func run(t *testing.T, do func(ctx context.Context), synced func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { do(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	limited, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if !synced(limited) {
		t.Fatal("the copy is not complete")
	}
}

// runInformer runs client-go's informer, or one with the same interface.
func runInformer(
	t *testing.T, cfg *rest.Config,
	of func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer,
) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	i := of(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		fields.Everything()), &corev1.Pod{}, 0, nil)
	run(t, i.RunWithContext, func(ctx context.Context) bool { return cache.WaitForCacheSync(ctx.Done(), i.HasSynced) })
}

// runLibrary runs an informer of the library.
func runLibrary(t *testing.T, cfg *rest.Config) {
	t.Helper()
	cluster, err := kube.FromConfig(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	i, err := watershed.New(cluster, &watershed.Options[*corev1.Pod]{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) { _ = i.Run(ctx) }, func(ctx context.Context) bool {
		return i.WaitForSync(ctx) == nil
	})
}

// runFleet runs a fleet of one cluster.
func runFleet(t *testing.T, cfg *rest.Config) {
	t.Helper()
	clusters, err := directory.NewStatic(fleet.Entry{Name: "one", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.New(clusters, &fleet.Options{Resources: []string{"pods"}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) { _ = f.Run(ctx) }, func(ctx context.Context) bool {
		return f.WaitForSync(ctx) == nil
	})
}
