// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/internal/kubetest/miniature"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// startCluster starts a server with three pods for an example, and returns it and access
// to it. Programs call kube.FromContext("prod") instead, or kube.FromConfig.
func startCluster() (*miniature.Server, *kube.Cluster) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // examples print results only
	server := miniature.New(
		miniature.Pod("shop", "cart", "node-7"), miniature.Pod("shop", "checkout", "node-7"),
		miniature.Pod("shop", "search", "node-8"))
	cluster, err := kube.FromConfig(server.Config(), &kube.Options{Name: "prod"})
	if err != nil {
		panic(err)
	}
	return server, cluster
}

// An informer keeps a copy of the pods of a namespace. A handler is called with
// existing objects and with changes.
func ExampleNew() {
	server, prod := startCluster() // or: prod, err := kube.FromContext("prod")
	defer server.Close()

	pods, err := watershed.New(prod, &watershed.Options[*corev1.Pod]{Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	deleted := make(chan struct{})
	handler := pods.Handle(watershed.Handler[*corev1.Pod]{
		Add: func(p *corev1.Pod, initial bool) { fmt.Println("add", p.Name, initial) },
		Update: func(old, now *corev1.Pod) {
			fmt.Println("update", now.Name, old.Spec.NodeName, now.Spec.NodeName)
		},
		Delete: func(last *corev1.Pod, seen bool) {
			fmt.Println("delete", last.Name, seen)
			close(deleted)
		},
	})

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pods.Run(ctx); err != nil {
			fmt.Println(err)
		}
	})
	if err := handler.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	cart, _ := pods.Get("shop/cart")
	fmt.Println(pods.Len(), "pods,", cart.Kind, cart.Name, "on", cart.Spec.NodeName)

	server.Put(miniature.Pod("shop", "payment", "node-7"))
	server.Put(miniature.Pod("shop", "payment", "node-8"))
	server.Delete("shop", "payment")
	<-deleted
	stop()
	running.Wait()
	// Output:
	// add cart true
	// add checkout true
	// add search true
	// 3 pods, Pod cart on node-7
	// add payment false
	// update payment node-7 node-8
	// delete payment true
}

// An index finds objects by a value that is computed from them.
func ExampleIndexBy() {
	server, prod := startCluster()
	defer server.Close()

	pods, err := watershed.New[*corev1.Pod](prod, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	byNode := watershed.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = pods.Run(ctx) })
	if err := pods.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	moment := pods.Snapshot() // does not change any more
	for node := range byNode.ValuesIn(moment) {
		for p := range byNode.GetIn(moment, node) {
			fmt.Println(node, p.Name)
		}
	}
	stop()
	running.Wait()
	// Output:
	// node-7 cart
	// node-7 checkout
	// node-8 search
}

// A loop over Watch receives the current state and then every change, until its context
// or the informer's run ends.
func ExampleInformer_Watch() {
	server, prod := startCluster()
	defer server.Close()

	pods, err := watershed.New[*corev1.Pod](prod, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { _ = pods.Run(ctx) })

	for c := range pods.Watch(ctx) {
		p, err := c.New()
		if err != nil {
			continue // not a Pod that this program understands
		}
		switch {
		case c.Initial:
			fmt.Println("there is", p.Name)
		case c.Type == watershed.Added:
			fmt.Println("new is", p.Name)
		case c.Type == watershed.Updated:
			fmt.Println("changed is", p.Name)
		case c.Type == watershed.Deleted:
			fmt.Println("gone is", p.Name)
			stop()
		}
		if c.Initial && p.Name == "search" {
			server.Put(miniature.Pod("shop", "payment", "node-7"))
			server.Delete("shop", "cart")
		}
	}
	if ctx.Err() == nil {
		fmt.Println("the informer has stopped")
	}
	running.Wait()
	// Output:
	// there is cart
	// there is checkout
	// there is search
	// new is payment
	// gone is cart
}

// A factory has one copy and one watch of a resource, whatever types its users read it as;
// only metadata has a copy of its own.
func ExampleFactory() {
	server, prod := startCluster()
	defer server.Close()

	factory := watershed.NewFactory(prod, nil)
	pods, err := watershed.Shared[*corev1.Pod](factory, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pods.Close()
	dynamic, err := watershed.Shared(factory, &watershed.SharedOptions[*unstructured.Unstructured]{
		Resource: corev1.SchemeGroupVersion.WithResource("pods"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dynamic.Close()
	byNode := watershed.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })

	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = factory.Run(ctx) })
	if err := factory.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	for p := range byNode.Get("node-8") {
		fmt.Println(p.Name)
	}
	for key, u := range dynamic.Namespace("shop") {
		fmt.Println(key, u.GetKind())
	}
	for resource, all := range factory.Status() {
		fmt.Println(resource.Resource, len(all))
	}
	stop()
	running.Wait()
	// Output:
	// search
	// shop/cart Pod
	// shop/checkout Pod
	// shop/search Pod
	// pods 1
}

// Drop and Transform reduce objects before they are stored. Drop cuts fields out of the bytes
// and decodes nothing. Transform runs once for every new state.
func ExampleOptions_transform() {
	server, prod := startCluster()
	defer server.Close()
	search := miniature.Pod("shop", "search", "node-8")
	search.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update"}}
	search.Spec.Containers = []corev1.Container{{Name: "search", Image: "search:1"}}
	server.Put(search)

	// A transform owns the pod, so it may modify it. This one keeps what the program reads.
	onlyNode := func(pod *corev1.Pod) (*corev1.Pod, error) {
		pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		return pod, nil
	}
	var whole int64
	for _, opts := range []*watershed.Options[*corev1.Pod]{
		{},
		{Drop: wire.ManagedFields},
		{Drop: wire.ManagedFields, Transform: onlyNode},
	} {
		pods, err := watershed.New(prod, opts)
		if err != nil {
			fmt.Println(err)
			return
		}
		stop := runSynced(pods)
		p, _ := pods.Get("shop/search")
		stats := pods.Stats()
		whole = max(whole, stats.ObjectBytes)
		fmt.Println(p.Name, "on", p.Spec.NodeName)
		fmt.Println(len(p.ManagedFields), "managed fields,", len(p.Spec.Containers), "containers")
		fmt.Println(stats.Objects, "pods, smaller:", stats.ObjectBytes < whole)
		stop()
	}
	// Output:
	// search on node-8
	// 1 managed fields, 1 containers
	// 3 pods, smaller: false
	// search on node-8
	// 0 managed fields, 1 containers
	// 3 pods, smaller: true
	// search on node-8
	// 0 managed fields, 0 containers
	// 3 pods, smaller: true
}

// Readers share the objects of an informer and must not modify them. Mutated, meant for tests,
// is called with each object that a reader has modified all the same.
func ExampleOptions_mutated() {
	server, prod := startCluster()
	defer server.Close()

	pods, err := watershed.New(prod, &watershed.Options[*corev1.Pod]{
		// The informer compares every second and when it stops.
		Mutated: func(key string, was, is *corev1.Pod) {
			fmt.Println(key, "was modified:", was.Spec.NodeName, "became", is.Spec.NodeName)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stop := runSynced(pods)
	cart, _ := pods.Get("shop/cart")
	cart.Spec.NodeName = "mine" // a mistake
	search, _ := pods.Get("shop/search")
	search.DeepCopy().Spec.NodeName = "mine" // not a mistake: the copy is the reader's own
	stop()
	// Output:
	// shop/cart was modified: node-7 became mine
}

// runSynced runs an informer until stop is called, and returns when it has synced.
func runSynced(pods *watershed.Informer[*corev1.Pod]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = pods.Run(ctx) })
	if err := pods.WaitForSync(ctx); err != nil {
		panic(err)
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// counted is a source that counts the lists of another one.
type counted struct {
	reflector.Source[*wire.Object]
	lists *atomic.Int64
}

func (c counted) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	c.lists.Add(1)
	return c.Source.List(ctx, opts, each)
}

// A factory shares an informer of a user's own source, such as one that wraps the
// cluster's.
func ExampleSharedOptions_newSource() {
	server, prod := startCluster()
	defer server.Close()

	factory := watershed.NewFactory(prod, nil)
	var lists atomic.Int64
	newSource := func(cluster *kube.Cluster, q kube.Query) (reflector.Source[*wire.Object], error) {
		source, err := cluster.Source(q)
		return counted{source, &lists}, err
	}
	for range 2 { // the second lease shares the informer of the first
		pods, err := watershed.Shared(factory,
			&watershed.SharedOptions[*corev1.Pod]{Namespace: "shop", NewSource: newSource})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer pods.Close()
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = factory.Run(ctx) })
	if err := factory.WaitForSync(ctx); err != nil {
		fmt.Println(err)
	}
	for resource, all := range factory.Status() {
		fmt.Println(resource.Resource, all[0].Objects, "objects,", lists.Load(), "list")
	}
	stop()
	running.Wait()
	// Output:
	// pods 3 objects, 1 list
}
