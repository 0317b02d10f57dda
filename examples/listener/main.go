// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command listener shows how changes reach more than one reader: one log, and a
// position in it for each reader. It does not need Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

type pod struct{ Name string }

func podKey(p pod) string { return p.Name }

func main() {
	every := flag.Duration("every", time.Second, "how often a pod is created")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *every); err != nil && ctx.Err() == nil {
		slog.Error("listener", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, every time.Duration) error {
	fmt.Fprintln(out, "# each at its own pace")
	if err := play(ctx, out, every, 5, nil); err != nil {
		return err
	}
	fmt.Fprintln(out, "# the log keeps three changes, and the second listener is slower than that")
	return play(ctx, out, every, 8, &fanout.Options[pod]{Count: 3})
}

// play creates count pods, which a fast and a slow listener receive.
func play(ctx context.Context, out io.Writer, every time.Duration, count int, opts *fanout.Options[pod]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pods := store.New(podKey, nil)
	log := fanout.New(opts)
	begin := time.Now()
	var mu sync.Mutex // for one line at a time
	say := func(name, what string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%6s %-6s %s\n", time.Since(begin).Round(every/4), name, what)
	}
	listeners := []*listener{
		{name: "first", say: say},
		{name: "second", say: say, pace: 9 * every / 4},
	}
	errs := make([]error, 1+len(listeners))
	var wg sync.WaitGroup
	for i, l := range listeners {
		wg.Go(func() { errs[i] = l.run(ctx, pods, log) })
	}
	errs[len(listeners)] = publish(ctx, pods, log, every, count)
	log.Close() // the listeners still receive the rest
	wg.Wait()
	return errors.Join(errs...)
}

// publish is the only writer. It does not wait for listeners.
func publish(ctx context.Context, pods *store.Store[pod], log *fanout.Log[pod], every time.Duration, count int) error {
	for i := range count {
		if err := sleep(ctx, every); err != nil {
			return err
		}
		p := pod{fmt.Sprintf("pod%d", i)}
		log.Publish(pods.Apply([]delta.Delta[pod]{{Type: delta.Added, Key: podKey(p), Object: p}}))
	}
	return nil
}

// listener is one reader of a log. Only its position is its own.
type listener struct {
	name string
	say  func(name, what string)
	// pace is how long the listener takes for each change.
	pace time.Duration
}

func (l *listener) run(ctx context.Context, pods *store.Store[pod], log *fanout.Log[pod]) error {
	cursor, err := log.Cursor(0, fanout.Everything())
	if err != nil {
		return err
	}
	for {
		batch, err := cursor.Next(ctx)
		switch {
		case errors.Is(err, fanout.ErrClosed):
			return nil
		case errors.Is(err, fanout.ErrExpired):
			// The missed changes are not kept for the listener. It continues from the
			// state, which all readers share.
			snapshot := pods.Snapshot()
			l.say(l.name, fmt.Sprintf("was too slow, and continues with the %d existing pods", snapshot.Len()))
			if cursor, err = log.Cursor(snapshot.Revision(), fanout.Everything()); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		for _, c := range batch {
			if err := sleep(ctx, l.pace); err != nil {
				return err
			}
			l.say(l.name, "OnAdd: "+c.Key)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
