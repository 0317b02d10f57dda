// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
)

// What the README shows, so that it compiles. It needs a cluster to run.
func ExampleNew() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func run(ctx context.Context) error {
	prod, err := kube.FromContext("prod")
	if err != nil {
		return err
	}
	pods, err := watershed.New(prod, &watershed.Options[*corev1.Pod]{Namespace: "shop"})
	if err != nil {
		return err
	}
	byNode := watershed.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
	pods.Handle(watershed.Handler[*corev1.Pod]{
		Add: func(p *corev1.Pod, initial bool) { fmt.Fprintln(os.Stdout, "add", p.Name, initial) },
		Update: func(old, now *corev1.Pod) {
			fmt.Fprintln(os.Stdout, "update", now.Name, old.Status.Phase, now.Status.Phase)
		},
		Delete: func(last *corev1.Pod, seen bool) { fmt.Fprintln(os.Stdout, "delete", last.Name, seen) },
	})
	ended := make(chan error)
	go func() { ended <- pods.Run(ctx) }()
	if err := pods.WaitForSync(ctx); err != nil {
		return err
	}
	for p := range byNode.Get("node-7") {
		fmt.Fprintln(os.Stdout, p.Kind, p.Name)
	}
	for c := range pods.Watch(ctx) {
		fmt.Fprintln(os.Stdout, c.Type, c.Key)
	}
	return <-ended
}
