// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command sharedinformer adds two handlers to one informer of pods. The second is slow,
// which does not delay the first. With -resync the first handler receives every pod again
// and again, with -late a third handler joins while the informer runs, and with -listen an
// index of the pods answers HTTP requests.
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

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/kube"
)

type options struct {
	namespace string
	// slow is how long the second handler takes for each call.
	slow time.Duration
	// late is when the third handler is added. 0 means never.
	late time.Duration
	// resync is how often the first handler receives every pod again. 0 means never.
	resync time.Duration
	// listen is the address at which the index answers. "" means nowhere.
	listen string
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "default", "the `namespace` of the pods")
	flag.DurationVar(&o.slow, "slow", 3*time.Second, "how long the second handler takes for a call")
	flag.DurationVar(&o.late, "late", 0, "add a third handler after this time")
	flag.DurationVar(&o.resync, "resync", 0, "how often the first handler receives every pod again")
	flag.StringVar(&o.listen, "listen", "", "the `address` to answer queries of the index at, such as 127.0.0.1:4000")
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
	again := printer("first", say)
	again.Resync = o.resync // a period of this handler only
	first := pods.Handle(again)
	second := pods.Handle(printer("second", func(line string) {
		say(line)
		select {
		case <-time.After(o.slow):
		case <-ctx.Done(): // Run waits for handlers
		}
	}))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { late(ctx, pods, o.late, say) })
	var serveErr error
	if o.listen != "" {
		wg.Go(func() {
			defer cancel()
			serveErr = serveIndex(ctx, pods, o.listen, say)
		})
	}
	runErr := pods.Run(ctx)
	cancel()
	wg.Wait()
	if err := errors.Join(runErr, serveErr); err != nil {
		return err
	}
	// The counts of the handlers outlive the run.
	for _, s := range []watershed.HandlerStatus{first.Status(), second.Status()} {
		fmt.Fprintf(out, "# %s was called %d times\n", s.Name, s.Delivered)
	}
	return nil
}

// late adds a handler after the given time, unless that is 0. A handler can join an
// informer at any time, and receives the existing pods first.
func late(ctx context.Context, pods *watershed.Informer[*corev1.Pod], after time.Duration, say func(line string)) {
	if after == 0 {
		return
	}
	select {
	case <-time.After(after):
		say("# late joins")
		pods.Handle(printer("late", say))
	case <-ctx.Done():
	}
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
			line := fmt.Sprintf("%-6s OnUpdate: %s %s to %s", name, now.Name, old.Status.Phase, now.Status.Phase)
			if old.ResourceVersion == now.ResourceVersion {
				line += " (resync)"
			}
			say(line)
		},
		Delete: func(last *corev1.Pod, _ bool) {
			say(fmt.Sprintf("%-6s OnDelete: %s %s", name, last.Name, last.Status.Phase))
		},
	}
}
