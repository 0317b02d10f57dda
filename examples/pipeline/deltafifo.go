// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/store"
)

// valuePod is an object with a key, which is all that the queue needs.
type valuePod struct {
	Name  string
	Value float64
}

func valuePodKey(p valuePod) string { return p.Name }

// deltaFIFO is the step deltafifo: the queue between a source and a store.
func deltaFIFO() { terminal.MainAlone(runDeltaFIFO) }

func runDeltaFIFO(ctx context.Context, out io.Writer) error {
	for _, part := range []struct {
		title string
		show  func(context.Context, io.Writer) error
	}{
		{"everything that happened to pod1 comes out together", grouped},
		{"a callback for each type", callbacks},
		{"keys come out in the order in which they went in", ordered},
		{"without known objects the delete is lost", withoutKnown},
		{"with known objects it is not", withKnown},
		{"anything with Get and All is known objects", withOwnKnown},
		{"a list queues Replaced, and Deleted for a known object that it does not have", replaced},
		{"a resync queues Sync for the known objects that are not queued", resynced},
	} {
		fmt.Fprintf(out, "# %s\n", part.title)
		if err := part.show(ctx, out); err != nil {
			return fmt.Errorf("%s: %w", part.title, err)
		}
	}
	return nil
}

// threePods queues three new pods, then an update and the deletion of the first.
func threePods(ctx context.Context, prefix string, update float64) (*delta.FIFO[valuePod], error) {
	fifo := delta.New(valuePodKey, nil)
	pod1 := valuePod{prefix + "1", 1}
	pod2 := valuePod{prefix + "2", 2}
	pod3 := valuePod{prefix + "3", 3}
	for _, p := range []valuePod{pod1, pod2, pod3} {
		if err := fifo.Add(ctx, p); err != nil {
			return nil, err
		}
	}
	pod1.Value = update
	if err := fifo.Update(ctx, pod1); err != nil {
		return nil, err
	}
	return fifo, fifo.Delete(ctx, pod1)
}

// pop takes all deltas of the oldest key from the queue, and calls each with every one.
func pop(ctx context.Context, fifo *delta.FIFO[valuePod], each func(delta.Delta[valuePod])) error {
	return fifo.Pop(ctx, func(deltas delta.Deltas[valuePod], _ bool) error {
		for _, d := range deltas {
			each(d)
		}
		return nil
	})
}

func grouped(ctx context.Context, out io.Writer) error {
	fifo, err := threePods(ctx, "pod", 10)
	if err != nil {
		return err
	}
	return pop(ctx, fifo, func(d delta.Delta[valuePod]) {
		fmt.Fprintln(out, d.Type, ":", d.Object.Name, d.Object.Value)
	})
}

func callbacks(ctx context.Context, out io.Writer) error {
	fifo, err := threePods(ctx, "pod", 1.1)
	if err != nil {
		return err
	}
	return pop(ctx, fifo, func(d delta.Delta[valuePod]) {
		fmt.Fprintln(out, d.Type, d.Object.Name, " value:", d.Object.Value)
		switch d.Type {
		case delta.Added:
			fmt.Fprintln(out, "add callback")
		case delta.Updated:
			fmt.Fprintln(out, "update callback")
		case delta.Deleted:
			fmt.Fprintln(out, "delete callback")
		}
	})
}

func ordered(ctx context.Context, out io.Writer) error {
	fifo, err := threePods(ctx, "pod-", 11)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, fifo.List())
	events := map[delta.Type]string{delta.Added: "Add", delta.Updated: "Update", delta.Deleted: "Delete"}
	for fifo.Len() > 0 {
		err := pop(ctx, fifo, func(d delta.Delta[valuePod]) {
			fmt.Fprintf(out, "%s Event: %v\n", events[d.Type], d.Object)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// life queues the events of a pod's life as a watch reports them. The queue is emptied
// after each event, so the deletion finds no queued deltas of the pod.
func life(ctx context.Context, out io.Writer, fifo *delta.FIFO[valuePod], apply func(delta.Deltas[valuePod])) error {
	nettool := valuePod{"nettool", 0}
	for _, event := range []func(context.Context, valuePod) error{fifo.Add, fifo.Update, fifo.Update, fifo.Delete} {
		if err := event(ctx, nettool); err != nil {
			return err
		}
		if fifo.Len() == 0 {
			continue
		}
		err := fifo.Pop(ctx, func(deltas delta.Deltas[valuePod], _ bool) error {
			for _, d := range deltas {
				fmt.Fprintln(out, d.Type, ":", d.Object.Name)
			}
			apply(deltas)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func withoutKnown(ctx context.Context, out io.Writer) error {
	return life(ctx, out, delta.New(valuePodKey, nil), func(delta.Deltas[valuePod]) {})
}

func withKnown(ctx context.Context, out io.Writer) error {
	pods := store.New(valuePodKey, nil)
	fifo := delta.New(valuePodKey, &delta.Options[valuePod]{Known: pods})
	return life(ctx, out, fifo, func(deltas delta.Deltas[valuePod]) { pods.Apply(deltas) })
}

// podMap is a minimal set of known objects. The queue reads it while the consumer
// writes it, unless both run in the same goroutine, as here.
type podMap map[string]valuePod

func (m podMap) Get(key string) (valuePod, bool) {
	p, ok := m[key]
	return p, ok
}

func (m podMap) All() iter.Seq2[string, valuePod] { return maps.All(m) }

func withOwnKnown(ctx context.Context, out io.Writer) error {
	pods := podMap{}
	fifo := delta.New(valuePodKey, &delta.Options[valuePod]{Known: pods})
	return life(ctx, out, fifo, func(deltas delta.Deltas[valuePod]) {
		if newest := deltas.Newest(); newest.Type == delta.Deleted {
			delete(pods, newest.Key)
		} else {
			pods[newest.Key] = newest.Object
		}
	})
}

// replaced queues a first list, and a second one after a connection was lost. In between,
// pod2 was deleted, and no event reported that.
func replaced(ctx context.Context, out io.Writer) error {
	pods := store.New(valuePodKey, nil)
	fifo := delta.New(valuePodKey, &delta.Options[valuePod]{Known: pods})
	for _, list := range [][]valuePod{
		{{"pod1", 1}, {"pod2", 2}},
		{{"pod1", 1.1}, {"pod3", 3}},
	} {
		if err := fifo.Replace(ctx, list, 0); err != nil {
			return err
		}
		if err := popAll(ctx, out, fifo, pods); err != nil {
			return err
		}
	}
	return nil
}

// resynced queues the known objects again. pod1 is queued already, with a newer state.
func resynced(ctx context.Context, out io.Writer) error {
	pods := store.New(valuePodKey, nil)
	for _, p := range []valuePod{{"pod1", 1}, {"pod2", 2}} {
		if err := pods.Put(p); err != nil {
			return err
		}
	}
	fifo := delta.New(valuePodKey, &delta.Options[valuePod]{Known: pods})
	if err := fifo.Update(ctx, valuePod{"pod1", 1.1}); err != nil {
		return err
	}
	if err := fifo.Resync(ctx); err != nil {
		return err
	}
	return popAll(ctx, out, fifo, pods)
}

// popAll prints and stores everything that is queued.
func popAll(ctx context.Context, out io.Writer, fifo *delta.FIFO[valuePod], pods *store.Store[valuePod]) error {
	for fifo.Len() > 0 {
		err := fifo.Pop(ctx, func(deltas delta.Deltas[valuePod], _ bool) error {
			for _, d := range deltas {
				fmt.Fprint(out, d.Type, " : ", d.Object.Name, " ", d.Object.Value)
				if d.Missed {
					fmt.Fprint(out, " (missed)") // inferred from the list, with the last known state
				}
				fmt.Fprintln(out)
			}
			pods.Apply(deltas)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
