// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command pipeline connects the stages by hand, queue to store to log to handlers, for
// a pod that is a plain struct. It is an informer without a source.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

type pod struct{ Namespace, Name, Phase string }

func podKey(p pod) string { return p.Namespace + "/" + p.Name }

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		slog.Error("pipeline", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	pods := store.New(podKey, nil)
	fifo := delta.New(podKey, &delta.Options[pod]{Known: pods})
	changes := fanout.New[pod](nil)
	byPhase := store.NewIndex(pods, "phase", func(p pod) ([]string, error) { return []string{p.Phase}, nil })

	var wg sync.WaitGroup
	var sourceErr, storeErr error
	wg.Go(func() {
		defer fifo.Close()
		sourceErr = source(ctx, fifo)
	})
	// The controller loop: all queued deltas become one batch, one snapshot and one
	// entry in the log.
	wg.Go(func() {
		defer changes.Close()
		for storeErr == nil {
			storeErr = fifo.Drain(ctx, func(deltas delta.Deltas[pod], _ bool) error {
				changes.Publish(pods.Apply(deltas))
				return nil
			})
		}
	})
	// The two handlers run at their own pace. One receives all changes, the other is
	// woken only for its namespace.
	var all, shop strings.Builder
	var allErr, shopErr error
	wg.Go(func() { allErr = handle(ctx, changes, fanout.Everything(), &all) })
	wg.Go(func() { shopErr = handle(ctx, changes, fanout.Namespace("shop"), &shop) })
	wg.Wait()

	fmt.Fprintf(out, "# handler of everything\n%s# handler of shop\n%s# what is there now\n", all.String(), shop.String())
	for key := range byPhase.Get(pods.Snapshot(), "Running") {
		fmt.Fprintln(out, "Running:", key)
	}
	return errors.Join(sourceErr, ended(storeErr, delta.ErrClosed), ended(allErr, fanout.ErrClosed), ended(shopErr, fanout.ErrClosed))
}

// source plays the events of a cluster: a list, some events, and a second list after a
// connection was lost, during which shop/db was deleted.
func source(ctx context.Context, fifo *delta.FIFO[pod]) error {
	web, db, nettool := pod{"shop", "web", "Running"}, pod{"shop", "db", "Running"}, pod{"default", "nettool", "Pending"}
	if err := fifo.Replace(ctx, []pod{web, db}, 0); err != nil {
		return err
	}
	if err := fifo.Add(ctx, nettool); err != nil {
		return err
	}
	nettool.Phase = "Running"
	if err := fifo.Update(ctx, nettool); err != nil {
		return err
	}
	if err := fifo.Delete(ctx, nettool); err != nil {
		return err
	}
	return fifo.Replace(ctx, []pod{web}, 0)
}

func handle(ctx context.Context, changes *fanout.Log[pod], interest fanout.Interest, out io.Writer) error {
	cursor, err := changes.Cursor(0, interest)
	if err != nil {
		return err
	}
	for {
		batch, err := cursor.Next(ctx)
		if err != nil {
			return err
		}
		for _, c := range batch {
			switch c.Type {
			case delta.Added:
				fmt.Fprintln(out, "OnAdd:", c.Key, c.New.Phase)
			case delta.Updated:
				fmt.Fprintln(out, "OnUpdate:", c.Key, c.Old.Phase, "to", c.New.Phase)
			case delta.Deleted:
				fmt.Fprintln(out, "OnDelete:", c.Key, "seen:", !c.Missed)
			}
		}
	}
}

// ended returns nil for the error that a stage is expected to end with.
func ended(err, end error) error {
	if errors.Is(err, end) {
		return nil
	}
	return err
}
