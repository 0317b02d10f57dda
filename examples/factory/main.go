// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command factory shares informers of several resources of a cluster. It leases config
// maps by their Go type and pods by group, version and resource, lists both from the
// copy, releases the config maps and follows the pods. With -all it leases everything
// that the cluster serves instead, and counts the objects, or lists those of one
// resource:
//
//	factory -all deployments -l app=web
//
// With -by-hand it builds a factory by hand, and compares it with watershed.Factory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

type options struct {
	namespace string
	all       bool
	byHand    bool
	// resource is the resource to list, and selector selects its objects.
	resource, selector string
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of pods and config maps")
	flag.BoolVar(&o.all, "all", false,
		"keep every resource, in all namespaces, and count the objects; with an argument, list those of that "+
			"resource, kind or short name")
	flag.BoolVar(&o.byHand, "by-hand", false, "build a factory by hand, and compare it with watershed.Factory")
	flag.StringVar(&o.selector, "l", "", "the label `selector` of the objects to list")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		o.resource = flag.Arg(0)
		return run(ctx, out, cluster, o)
	})
}

// idle is how long an informer without leases is kept.
const idle = 20 * time.Millisecond

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	opts := &watershed.FactoryOptions{StopIdle: idle}
	show := func(ctx context.Context, factory *watershed.Factory) error {
		return everything(ctx, out, cluster, factory, o.resource, o.selector)
	}
	if o.all && o.byHand {
		return errors.New("-by-hand and -all exclude each other")
	}
	if !o.all {
		if o.resource != "" || o.selector != "" {
			return errors.New("a resource and a selector need -all")
		}
		opts.Namespace = o.namespace
		show = func(ctx context.Context, factory *watershed.Factory) error { return twoResources(ctx, out, factory) }
	}
	if o.byHand {
		if err := byHand(ctx, out, newMyFactory(cluster, o.namespace)); err != nil {
			return err
		}
		show = func(ctx context.Context, factory *watershed.Factory) error { return notByHand(ctx, out, factory) }
	}
	factory := watershed.NewFactory(cluster, opts)

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = factory.Run(ctx)
	})
	err := show(ctx, factory)
	cancel()
	wg.Wait()
	return errors.Join(err, runErr)
}

func twoResources(ctx context.Context, out io.Writer, factory *watershed.Factory) error {
	configMaps, err := watershed.Shared[*corev1.ConfigMap](factory, nil)
	if err != nil {
		return err
	}
	pods, err := watershed.Shared[*unstructured.Unstructured](factory,
		&watershed.SharedOptions[*unstructured.Unstructured]{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		})
	if err != nil {
		return err
	}
	defer pods.Close()
	if err := factory.WaitForSync(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "ConfigMap:")
	for key := range configMaps.All() {
		fmt.Fprintln(out, key)
	}
	fmt.Fprintln(out, "Pod:")
	for key := range pods.All() {
		fmt.Fprintln(out, key)
	}

	report(out, factory)
	configMaps.Close()
	// The informer stops when it has had no lease for a while, and stopping takes a
	// moment.
	if err := wait(ctx, func() bool { return len(factory.Status()) == 1 && configMaps.Len() == 0 }); err != nil {
		return err
	}
	fmt.Fprintf(out, "# config maps were given back: %d are kept\n", configMaps.Len())
	report(out, factory)

	// The changes are read in a loop instead of a handler. The current state comes
	// first.
	for change := range pods.Watch(ctx) {
		pod, err := change.New()
		if err != nil {
			return err
		}
		if change.Initial {
			continue // printed above
		}
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		fmt.Fprintln(out, change.Type, ":", change.Key, ":", phase)
	}
	return nil
}

// report prints the informers that the factory runs.
func report(out io.Writer, factory *watershed.Factory) {
	for resource, all := range sorted(factory.Status()) {
		for _, s := range all {
			fmt.Fprintf(out, "# runs %s: %s, %d objects\n", resource, s.Reflector.State, s.Objects)
		}
	}
}

// wait returns when so returns true.
func wait(ctx context.Context, so func() bool) error {
	for !so() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
