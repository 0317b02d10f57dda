// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// program has what the programs need: a client, constructors and a terminal.
type program struct {
	constructors
	client         kubernetes.Interface
	namespace, app string
	out            *lines
}

// listWatch returns the list and the watch of a resource.
func (p *program) listWatch(resource string) cache.ListerWatcher {
	return cache.NewListWatchFromClient(p.client.CoreV1().RESTClient(), resource, p.namespace, fields.Everything())
}

// informer is the program of NewInformer: a store and one handler.
func informer(ctx context.Context, p *program) error {
	store, controller := p.NewInformer(p.listWatch("configmaps"), &corev1.ConfigMap{}, 0, &cmdHandler{out: p.out})
	return p.runController(ctx, controller, func() error {
		p.out.println("store:", names(store.List()))
		return nil
	})
}

// labelsIndexFunc returns the value under which an object is found.
func labelsIndexFunc(obj any) ([]string, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return []string{""}, fmt.Errorf("object has no meta: %w", err)
	}
	return []string{m.GetLabels()["app"]}, nil
}

// indexerInformer is the program of NewIndexerInformer: the same with an index.
func indexerInformer(ctx context.Context, p *program) error {
	indexers := cache.Indexers{"app": labelsIndexFunc}
	indexer, controller := p.NewIndexerInformer(p.listWatch("pods"), &corev1.Pod{}, 0, &cmdHandler{out: p.out},
		indexers)
	return p.runController(ctx, controller, func() error {
		pods, err := indexer.ByIndex("app", p.app)
		if err != nil {
			return err
		}
		p.out.println("app="+p.app+":", names(pods))
		return nil
	})
}

// runController runs a controller until ctx ends, and calls synced when the store is
// complete. Tutorials sleep for three seconds instead.
func (p *program) runController(ctx context.Context, controller cache.Controller, synced func() error) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { controller.Run(ctx.Done()) })
	if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		return ctx.Err()
	}
	if err := synced(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// sharedInformer is the program of NewSharedInformer: two handlers.
func sharedInformer(ctx context.Context, p *program) error {
	shared := p.NewSharedInformer(p.listWatch("configmaps"), &corev1.ConfigMap{}, 0)
	for _, prefix := range []string{"first ", "second "} {
		if _, err := shared.AddEventHandler(&cmdHandler{out: p.out, prefix: prefix}); err != nil {
			return err
		}
	}
	shared.Run(ctx.Done())
	return nil
}

// informerFactory is the program of NewSharedInformerFactoryWithOptions: informers of
// several resources, requested by resource, and their listers.
func informerFactory(ctx context.Context, p *program) error {
	factory := p.NewFactory(p.client, p.namespace)
	configMaps, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	if err != nil {
		return err
	}
	if _, err := configMaps.Informer().AddEventHandler(&cmdHandler{out: p.out}); err != nil {
		return err
	}
	if _, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	listed, err := factory.Core().V1().ConfigMaps().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	p.out.println("ConfigMap:", names(listed))
	pods, err := factory.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	p.out.println("Pod:", names(pods))
	<-ctx.Done()
	return nil
}

// names returns the sorted names of objects. client-go's store is a map, so its lists
// have no order.
func names[T any](objects []T) []string {
	var all []string
	for _, obj := range objects {
		all = append(all, name(obj))
	}
	slices.Sort(all)
	return all
}

// name returns the name of an object, or of the last state of a deleted one.
func name(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	return obj.(metav1.Object).GetName()
}

// cmdHandler prints its calls.
type cmdHandler struct {
	out    *lines
	prefix string
}

func (h *cmdHandler) OnAdd(obj any, _ bool) { h.out.println(h.prefix+"Add:", name(obj)) }
func (h *cmdHandler) OnUpdate(_, obj any)   { h.out.println(h.prefix+"Update:", name(obj)) }
func (h *cmdHandler) OnDelete(obj any)      { h.out.println(h.prefix+"Delete:", name(obj)) }

// lines prints lines from several goroutines.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) println(words ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, words...)
}
