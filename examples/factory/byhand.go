// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watershed-project/watershed"
)

// printer returns a handler that prints the names of pods.
func printer(out io.Writer) watershed.Handler[*corev1.Pod] {
	return watershed.Handler[*corev1.Pod]{
		Add: func(p *corev1.Pod, _ bool) { fmt.Fprintln(out, "OnAdd:", p.Name) },
	}
}

// asUnstructured requests pods as a type that does not imply their resource.
var asUnstructured = watershed.Options[*unstructured.Unstructured]{
	Resource: corev1.SchemeGroupVersion.WithResource("pods"),
}

// byHand requests informers of pods and config maps from a factory by hand, a map from type
// to informer, starts them together, and then requests one too late.
func byHand(ctx context.Context, out io.Writer, f *myFactory) error {
	fmt.Fprintln(out, "# by hand: a map from type to informer")
	pods, err := informerOf[*corev1.Pod](f, nil)
	if err != nil {
		return err
	}
	handler := pods.Handle(printer(out))
	again, err := informerOf[*corev1.Pod](f, nil)
	if err != nil {
		return err
	}
	if _, err := informerOf[*corev1.ConfigMap](f, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.Wait()
	defer cancel()
	f.Start(ctx)
	if err := errors.Join(f.WaitForSync(ctx), handler.WaitForSync(ctx)); err != nil {
		return err
	}
	fmt.Fprintln(out, "two callers have the same informer of pods:", pods == again)
	fmt.Fprintln(out, "informers:", f)

	// The key of the map is the Go type. The same pods as another type are therefore
	// another informer, with a watch and a copy of its own. Start has been called
	// already, so this one never runs.
	opts := asUnstructured
	late, err := informerOf(f, &opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pods as another type, requested late: synced %t, %d objects\n", late.HasSynced(), late.Len())
	fmt.Fprintln(out, "informers:", f)
	return nil
}

// notByHand does the same with a factory that runs already. It can do three things that the
// map cannot: start an informer late, keep one copy for several types, and stop one informer
// and free its memory.
func notByHand(ctx context.Context, out io.Writer, factory *watershed.Factory) error {
	fmt.Fprintln(out, "# watershed.Factory")
	pods, err := watershed.Shared[*corev1.Pod](factory, nil)
	if err != nil {
		return err
	}
	defer pods.Close()
	handler := pods.Handle(printer(out))
	configMaps, err := watershed.Shared[*corev1.ConfigMap](factory, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(factory.WaitForSync(ctx), handler.WaitForSync(ctx)); err != nil {
		return err
	}
	fmt.Fprintln(out, "informers:", status(factory))

	late, err := watershed.Shared(factory, &watershed.SharedOptions[*unstructured.Unstructured]{
		Resource: asUnstructured.Resource,
	})
	if err != nil {
		return err
	}
	defer late.Close()
	if err := late.WaitForSync(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "pods as another type, requested late: synced %t, %d objects\n", late.HasSynced(), late.Len())
	fmt.Fprintln(out, "informers:", status(factory))

	// The factory counts leases. It stops an informer when its last lease is released.
	second, err := watershed.Shared[*corev1.ConfigMap](factory, nil)
	if err != nil {
		return err
	}
	second.Close()
	time.Sleep(5 * idle)
	fmt.Fprintln(out, "one of two leases of config maps is released:", status(factory))
	configMaps.Close()
	if err := wait(ctx, func() bool { return len(factory.Status()) == 1 && configMaps.Len() == 0 }); err != nil {
		return err
	}
	fmt.Fprintln(out, "the other one is released:", status(factory))
	fmt.Fprintln(out, "config maps in memory:", configMaps.Len())
	return nil
}

// status returns the resources of a factory and the number of their objects.
func status(factory *watershed.Factory) string {
	var all []string
	for resource, informers := range factory.Status() {
		for _, s := range informers {
			all = append(all, fmt.Sprintf("%s (%d)", resource.Resource, s.Objects))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
