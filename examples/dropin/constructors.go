// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
)

// constructors are the functions that the programs call to make informers, with
// client-go's parameters and results.
type constructors struct {
	NewInformer func(cache.ListerWatcher, runtime.Object, time.Duration,
		cache.ResourceEventHandler) (cache.Store, cache.Controller)
	NewIndexerInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.ResourceEventHandler,
		cache.Indexers) (cache.Indexer, cache.Controller)
	NewSharedInformer func(cache.ListerWatcher, runtime.Object, time.Duration) cache.SharedInformer
	NewFactory        func(client kubernetes.Interface, namespace string) informers.SharedInformerFactory
}

var packages = map[string]constructors{
	"client-go": {
		NewInformer:        cache.NewInformer,        //nolint:staticcheck // tutorials use it
		NewIndexerInformer: cache.NewIndexerInformer, //nolint:staticcheck // tutorials use it
		NewSharedInformer:  cache.NewSharedInformer,
		NewFactory: func(client kubernetes.Interface, namespace string) informers.SharedInformerFactory {
			return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
		},
	},
	"compat": {
		NewInformer: func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
			h cache.ResourceEventHandler) (cache.Store, cache.Controller) {
			return newIndexerInformer(lw, example, resync, h, cache.Indexers{})
		},
		NewIndexerInformer: newIndexerInformer,
		NewSharedInformer: func(lw cache.ListerWatcher, example runtime.Object,
			resync time.Duration) cache.SharedInformer {
			return newInformer(lw, example, resync, cache.Indexers{})
		},
		NewFactory: newFactory,
	},
}

// newInformer has the parameters and the result of cache.NewSharedIndexInformer. A
// program that calls that function, or passes it on as controller-runtime does, needs no
// other change.
var newInformer = compat.NewInformer(nil)

// newIndexerInformer replaces cache.NewIndexerInformer, which no caller can exchange. A
// program changes the line
//
//	store, controller := cache.NewIndexerInformer(lw, &corev1.Pod{}, 0, handler, indexers)
//
// to
//
//	store, controller := newIndexerInformer(lw, &corev1.Pod{}, 0, handler, indexers)
func newIndexerInformer(
	lw cache.ListerWatcher, example runtime.Object, resync time.Duration, h cache.ResourceEventHandler,
	indexers cache.Indexers,
) (cache.Indexer, cache.Controller) {
	i := newInformer(lw, example, resync, indexers)
	registration, err := i.AddEventHandler(h)
	if err != nil {
		panic(err) // only a stopped informer refuses handlers
	}
	return i.GetIndexer(), controller{i, registration}
}

// controller is an informer with a single handler. It has synced when the handler has
// received all objects of the first list.
type controller struct {
	cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
}

func (c controller) HasSynced() bool                     { return c.registration.HasSynced() }
func (c controller) HasSyncedChecker() cache.DoneChecker { return c.registration.HasSyncedChecker() }

// newFactory puts informers into client-go's factory before the program requests them.
// The factory returns the existing informer of a type, so ForResource, Lister and all
// other methods use it. The namespace has to be given again, because the factory does
// not pass it to constructors.
func newFactory(client kubernetes.Interface, namespace string) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	for resource, example := range map[string]runtime.Object{"configmaps": &corev1.ConfigMap{}, "pods": &corev1.Pod{}} {
		factory.InformerFor(example, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			lw := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), resource, namespace, fields.Everything())
			return newInformer(lw, example, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
	return factory
}
