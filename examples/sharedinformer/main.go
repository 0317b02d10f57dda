// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command sharedinformer adds two handlers to one informer of pods. The second is slow,
// which does not delay the first.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

type options struct {
	namespace string
	// slow is how long the second handler takes for each call.
	slow time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.DurationVar(&o.slow, "slow", 3*time.Second, "how long the second handler takes for a call")
	terminal.Main(func(ctx context.Context, out io.Writer, cluster *kube.Cluster) error {
		return run(ctx, out, cluster, o)
	})
}

func run(ctx context.Context, out io.Writer, cluster *kube.Cluster, o options) error {
	pods, err := watershed.New[*corev1.Pod](cluster, &watershed.Options[*corev1.Pod]{Namespace: o.namespace})
	if err != nil {
		return err
	}
	// Handlers run concurrently and must guard what they share.
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, line)
	}
	first := pods.Handle(printer("first", say))
	second := pods.Handle(printer("second", func(line string) {
		say(line)
		select {
		case <-time.After(o.slow):
		case <-ctx.Done(): // Run waits for handlers
		}
	}))
	if err := pods.Run(ctx); err != nil {
		return err
	}
	// The counts of the handlers outlive the run.
	for _, s := range []watershed.HandlerStatus{first.Status(), second.Status()} {
		fmt.Fprintf(out, "# %s was called %d times\n", s.Name, s.Delivered)
	}
	return nil
}

// printer returns a handler that prints its calls.
func printer(name string, say func(line string)) watershed.Handler[*corev1.Pod] {
	return watershed.Handler[*corev1.Pod]{
		Name: name,
		Add: func(p *corev1.Pod, initial bool) {
			line := fmt.Sprintf("%-6s OnAdd: %s %s", name, p.Name, p.Status.Phase)
			if initial {
				line += " (was there)"
			}
			say(line)
		},
		Update: func(old, now *corev1.Pod) {
			say(fmt.Sprintf("%-6s OnUpdate: %s %s to %s", name, now.Name, old.Status.Phase, now.Status.Phase))
		},
		Delete: func(last *corev1.Pod, _ bool) {
			say(fmt.Sprintf("%-6s OnDelete: %s %s", name, last.Name, last.Status.Phase))
		},
	}
}
