// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/go-logr/logr"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/internal/kubetest"
)

var manyPods = flag.Int("memory.pods", 6_000, "pods of TestReal_stopFreesMemory; make nightly has 30,000")

// crowd is a server with many pods, and a client of it.
type crowd struct {
	config  *rest.Config
	http    *http.Client
	clients *kubernetes.Clientset
	cache   ctrlcache.Cache // created by withCache
	// keep has everything that the program holds after the stop: an informer must free
	// its objects although it can still be reached.
	keep []any
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	c := kubetest.Start(t, nil)
	if err := c.LoadPods(t.Context(), kubetest.Workload{Seed: 1}, *manyPods); err != nil {
		t.Fatal(err)
	}
	cfg := c.Config()
	cfg.QPS = -1
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.Wrap(compat.Tap) // affects our informers only
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	clients, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{config: cfg, http: hc, clients: clients}
}

// session runs an informer of all pods until the returned function is called. The function
// returns when the run has.
type session func(t *testing.T, c *crowd, subject constructor) (cache.SharedIndexInformer, func())

// withFactory is a session with client-go's factory and lister.
func withFactory(t *testing.T, c *crowd, subject constructor) (cache.SharedIndexInformer, func()) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(c.clients, 0)
	i := factory.InformerFor(&corev1.Pod{},
		func(k kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			lw := cache.NewListWatchFromClient(k.CoreV1().RESTClient(), "pods", "", fields.Everything())
			return subject(lw, &corev1.Pod{}, resync, podIndexes())
		})
	lister := factory.Core().V1().Pods().Lister()
	c.keep = append(c.keep, factory, i, lister)
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	return i, func() {
		cancel()
		factory.Shutdown()
	}
}

// withCache is a session with controller-runtime's cache, which goes on after the informer
// was removed from it, and has it again in the next session.
func withCache(t *testing.T, c *crowd, subject constructor) (cache.SharedIndexInformer, func()) {
	t.Helper()
	if c.cache == nil {
		c.cache = startCache(t, c, subject)
	}
	found, err := c.cache.GetInformer(t.Context(), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	i := found.(cache.SharedIndexInformer)
	c.keep = append(c.keep, i)
	return i, func() {
		if err := c.cache.RemoveInformer(t.Context(), &corev1.Pod{}); err != nil {
			t.Fatal(err)
		}
		expect.Soon(t, "the end of the run", i.IsStopped)
	}
}

// startCache runs a cache for the duration of the test.
func startCache(t *testing.T, c *crowd, subject constructor) ctrlcache.Cache {
	t.Helper()
	cc, err := ctrlcache.New(c.config, ctrlcache.Options{
		Scheme: scheme.Scheme, NewInformer: subject, HTTPClient: c.http,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cc.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return cc
}

func podIndexes() cache.Indexers {
	return cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"node":               func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil },
	}
}

// cycle runs a session and returns the live heap while the informer has all pods. After the
// stop it calls then.
func (c *crowd) cycle(
	t *testing.T, run session, subject constructor, then func(cache.SharedIndexInformer),
) (with uint64) {
	t.Helper()
	i, stop := run(t, c, subject)
	added := 0
	r := join(t, i, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { added++ }})
	expect.Eventually(t, 5*time.Minute, func() error {
		// The first list may be of any version, because the server is still loading.
		if n := len(i.GetStore().ListKeys()); n != *manyPods || !r.HasSynced() {
			return fmt.Errorf("%d pods, synced %v", n, r.HasSynced())
		}
		return nil
	})
	with = heap()
	stop()
	c.http.CloseIdleConnections()
	if added < *manyPods {
		t.Errorf("the handler was called with %d pods", added)
	}
	then(i)
	return with
}

// TestReal_stopFreesMemory checks that a stopped informer frees its objects, although the
// program still holds its factory or the informer. The heap is measured as for the
// library's own informer.
func TestReal_stopFreesMemory(t *testing.T) {
	c := newCrowd(t)
	logger := slog.New(slog.DiscardHandler)
	// read lists everything after the stop, as a worker may that empties its queue: the
	// values must not stay either.
	read := func(t *testing.T, i cache.SharedIndexInformer, want int) {
		t.Helper()
		all, err := corelisters.NewPodLister(i.GetIndexer()).List(labels.Everything())
		if err != nil || len(all) != want {
			t.Errorf("after the stop the lister has %d pods, %v, want %d", len(all), err, want)
		}
	}
	nothing := func(*testing.T, cache.SharedIndexInformer) {}
	workaround := func(t *testing.T, i cache.SharedIndexInformer) {
		read(t, i, *manyPods)
		if err := i.GetStore().Replace(nil, ""); err != nil {
			t.Error(err)
		}
		read(t, i, 0)
	}
	for _, s := range []struct {
		name    string
		run     session
		subject constructor
		then    func(*testing.T, cache.SharedIndexInformer)
		// wait is how long the memory may take to be freed.
		wait  time.Duration
		stays bool
	}{
		{"client-go's keeps its objects", withFactory, theirs, nothing, 0, true},
		{
			"ours, emptied", withFactory, compat.NewInformer(&compat.Options{Logger: logger, Linger: time.Hour}),
			workaround, 0, false,
		},
		{"ours, after the linger", withFactory,
			compat.NewInformer(&compat.Options{Logger: logger, Linger: 3 * time.Second}),
			func(t *testing.T, i cache.SharedIndexInformer) {
				read(t, i, *manyPods)
			}, time.Minute, false},
		{
			"ours, fast and without a linger", withFactory,
			compat.NewInformer(&compat.Options{Logger: logger, Linger: -1, Fast: true}), nothing, 0, false,
		},
		{
			"ours, removed from controller-runtime's cache", withCache,
			compat.NewInformer(&compat.Options{Logger: logger, Linger: -1}), nothing, 5 * time.Second, false,
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			c.keep = nil
			then := func(i cache.SharedIndexInformer) { s.then(t, i) }
			// The first cycle makes the allocations that stay.
			c.cycle(t, s.run, s.subject, func(i cache.SharedIndexInformer) {
				then(i)
				if err := i.GetStore().Replace(nil, ""); err != nil {
					t.Error(err)
				}
			})
			before := heap()
			with := c.cycle(t, s.run, s.subject, then)
			stopped := time.Now()
			after := heap()
			for after > before+before/20 && time.Since(stopped) < s.wait {
				time.Sleep(time.Second) // goroutines of the informer end, and release its memory
				after = heap()
			}
			t.Logf("live heap: before %.1f MB, with %d pods %.1f MB, %v after stop %.1f MB (%+.1f %%)",
				float64(before)/1e6, *manyPods, float64(with)/1e6, time.Since(stopped).Round(time.Second),
				float64(after)/1e6, 100*(float64(after)/float64(before)-1))
			if with < before+uint64(*manyPods)*500 {
				t.Errorf("with %d pods the heap was %d bytes, before %d: the test shows nothing", *manyPods, with,
					before)
			}
			if stays := after > before+before/20; stays != s.stays {
				t.Errorf("after stop the heap is %d bytes, before it was %d", after, before)
			}
		})
	}
}
