// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/store"
)

// pod is a plain struct: no stage needs Kubernetes.
type pod struct{ Namespace, Name, Phase string }

func podKey(p pod) string { return p.Namespace + "/" + p.Name }

// runPlayed runs the informer on events that play plays. One handler receives all
// changes, the other is woken only for its namespace.
func runPlayed(ctx context.Context, out io.Writer) error {
	pods := newInformer(podKey, nil)
	byPhase := store.NewIndex(pods.store, "phase", func(p pod) ([]string, error) { return []string{p.Phase}, nil })
	var all, shop strings.Builder
	pods.handle(fanout.Everything(), func(c store.Change[pod]) { printPlayed(&all, c) })
	pods.handle(fanout.Namespace("shop"), func(c store.Change[pod]) { printPlayed(&shop, c) })
	if err := pods.run(ctx, play); err != nil {
		return err
	}
	fmt.Fprintf(out, "# handler of everything\n%s# handler of shop\n%s# what is there now\n", all.String(),
		shop.String())
	for key := range byPhase.Get(pods.store.Snapshot(), "Running") {
		fmt.Fprintln(out, "Running:", key)
	}
	return nil
}

// play plays the events of a cluster: a list, some events, and a second list after a
// connection was lost, during which shop/db was deleted.
func play(ctx context.Context, fifo *delta.FIFO[pod]) error {
	web := pod{"shop", "web", "Running"}
	db := pod{"shop", "db", "Running"}
	nettool := pod{"default", "nettool", "Pending"}
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

func printPlayed(out io.Writer, c store.Change[pod]) {
	switch c.Type {
	case delta.Added:
		fmt.Fprintln(out, "OnAdd:", c.Key, c.New.Phase)
	case delta.Updated:
		fmt.Fprintln(out, "OnUpdate:", c.Key, c.Old.Phase, "to", c.New.Phase)
	case delta.Deleted:
		fmt.Fprintln(out, "OnDelete:", c.Key, "seen:", !c.Missed)
	}
}
