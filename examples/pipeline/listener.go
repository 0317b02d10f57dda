// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

// listeners is the step listener: how changes reach more than one reader through one log,
// with a position in it for each reader.
func listeners() {
	every := flag.Duration("every", time.Second, "how often a pod is created")
	terminal.MainAlone(func(ctx context.Context, out io.Writer) error {
		return runListeners(ctx, out, *every)
	})
}

func runListeners(ctx context.Context, out io.Writer, every time.Duration) error {
	fmt.Fprintln(out, "# each at its own pace")
	if err := listen(ctx, out, every, 5, nil); err != nil {
		return err
	}
	fmt.Fprintln(out, "# the log keeps three changes, and the second listener is slower than that")
	return listen(ctx, out, every, 8, &fanout.Options[pod]{Count: 3})
}

// listen creates count pods, which a fast and a slow listener receive.
func listen(ctx context.Context, out io.Writer, every time.Duration, count int, opts *fanout.Options[pod]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pods := store.New(podName, nil)
	log := fanout.New(opts)
	begin := time.Now()
	var mu sync.Mutex // for one line at a time
	say := func(name, what string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "%6s %-6s %s\n", time.Since(begin).Round(every/4), name, what)
	}
	both := []*listener{
		{name: "first", say: say},
		{name: "second", say: say, pace: 9 * every / 4},
	}
	errs := make([]error, 1+len(both))
	var wg sync.WaitGroup
	for i, l := range both {
		wg.Go(func() { errs[i] = l.run(ctx, pods, log) })
	}
	errs[len(both)] = publish(ctx, pods, log, every, count)
	log.Close() // the listeners still receive the rest
	wg.Wait()
	return errors.Join(errs...)
}

func podName(p pod) string { return p.Name }

// publish is the only writer. It does not wait for listeners.
func publish(ctx context.Context, pods *store.Store[pod], log *fanout.Log[pod], every time.Duration, count int) error {
	for i := range count {
		if err := sleep(ctx, every); err != nil {
			return err
		}
		p := pod{Name: fmt.Sprintf("pod%d", i)}
		log.Publish(pods.Apply([]delta.Delta[pod]{{Type: delta.Added, Key: podName(p), Object: p}}))
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
