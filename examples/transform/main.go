// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command transform shows two options of an informer: a transform, which reduces objects
// before they are stored, and the detector of readers that modify shared objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

type options struct {
	namespace, labels string
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.StringVar(&o.labels, "l", "", "a `selector` of labels, such as app=web")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	if err := transforms(ctx, out, cluster, o); err != nil {
		return err
	}
	return detector(ctx, out, cluster, o)
}

// transforms reads the same pods with three informers.
func transforms(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	for _, way := range []struct {
		title string
		opts  watershed.Options[*corev1.Pod]
	}{
		{"as the server sends them", watershed.Options[*corev1.Pod]{}},
		// Drop cuts fields out of the bytes and decodes nothing.
		{"without managed fields", watershed.Options[*corev1.Pod]{Drop: wire.ManagedFields}},
		// Transform runs once for every new state.
		{"with a transform", watershed.Options[*corev1.Pod]{Drop: wire.ManagedFields, Transform: withoutContainers}},
	} {
		fmt.Fprintf(out, "# %s\n", way.title)
		way.opts.Namespace, way.opts.LabelSelector = o.namespace, o.labels
		pods, err := watershed.New(cluster, &way.opts)
		if err != nil {
			return err
		}
		err = while(ctx, pods, func() {
			for key, pod := range pods.All() {
				fmt.Fprintf(out, "%s: %s, managed fields %d, containers %d\n", key, pod.Status.Phase, len(pod.ManagedFields), len(pod.Spec.Containers))
			}
			stats := pods.Stats()
			fmt.Fprintf(out, "%d objects: %d bytes\n", stats.Objects, stats.ObjectBytes)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withoutContainers is a transform. It owns the pod, so it may modify it. It keeps the
// phase, and discards what the program does not read.
func withoutContainers(pod *corev1.Pod) (*corev1.Pod, error) {
	pod.Spec = corev1.PodSpec{}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	return pod, nil
}

// detector modifies a pod of the informer, which is a mistake, and then a copy, which is
// not.
func detector(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	for _, reader := range []struct {
		title  string
		modify func(*corev1.Pod)
	}{
		{"a reader modifies a shared pod", func(pod *corev1.Pod) { pod.Status.Phase = "Mine" }},
		{"a reader modifies a copy", func(pod *corev1.Pod) { pod.DeepCopy().Status.Phase = "Mine" }},
	} {
		fmt.Fprintf(out, "# %s\n", reader.title)
		found := 0
		pods, err := watershed.New(cluster, &watershed.Options[*corev1.Pod]{
			Namespace:     o.namespace,
			LabelSelector: o.labels,
			// The detector compares every second and when the informer stops.
			Mutated: func(key string, was, is *corev1.Pod) {
				found++
				fmt.Fprintf(out, "%s was modified: %s became %s\n", key, was.Status.Phase, is.Status.Phase)
			},
		})
		if err != nil {
			return err
		}
		err = while(ctx, pods, func() {
			for _, pod := range pods.All() {
				reader.modify(pod)
				break // one pod will do
			}
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "pods found: %d\n", found)
	}
	return nil
}

// while runs an informer, calls read when it has synced, and stops it.
func while(ctx context.Context, pods *watershed.Informer[*corev1.Pod], read func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() {
		defer cancel()
		runErr = pods.Run(ctx)
	})
	err := pods.WaitForSync(ctx)
	if err == nil {
		read()
	}
	cancel()
	wg.Wait()
	return errors.Join(err, runErr)
}
