// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
)

// A program with client-go's factory passes it Watershed's informers, and uses its
// listers as before. A program with controller-runtime sets cache.Options.NewInformer to
// compat.NewInformer(nil).
func ExampleNewInformer() {
	server := miniature.New(miniature.Pod("shop", "cart", "node-7"), miniature.Pod("shop", "search", "node-8"))
	defer server.Close()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		fmt.Println(err)
		return
	}

	newInformer := compat.NewInformer(&compat.Options{Logger: slog.New(slog.DiscardHandler)})
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.InformerFor(&corev1.Pod{},
		func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			lw := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
				fields.Everything())
			return newInformer(lw, &corev1.Pod{}, resync, cache.Indexers{
				cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
			})
		})
	deleted := make(chan struct{})
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) { fmt.Println("add", obj.(*corev1.Pod).Name, initial) },
		DeleteFunc: func(obj any) {
			fmt.Println("delete", obj.(*corev1.Pod).Name)
			close(deleted)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), handler.HasSynced)
	pods, err := factory.Core().V1().Pods().Lister().Pods("shop").List(labels.Everything())
	fmt.Println(len(pods), "pods", err)
	server.Delete("shop", "cart")
	<-deleted
	stop()
	factory.Shutdown()
	// Output:
	// add cart true
	// add search true
	// 2 pods <nil>
	// delete cart
}
