// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Command indexer shows a store, reading by namespace, which does not need an index,
// and an index on a label.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/watershed-project/watershed/store"
)

type pod struct {
	Namespace, Name string
	Labels          map[string]string
}

func podKey(p *pod) string { return p.Namespace + "/" + p.Name }

func main() {
	if err := run(os.Stdout); err != nil {
		slog.Error("indexer", "err", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	pods := store.New(podKey, nil)
	// An index is a value, not a name, so a missing index cannot be queried.
	byApp := store.NewIndex(pods, "app", func(p *pod) ([]string, error) {
		return []string{p.Labels["app"]}, nil
	})
	for _, p := range []*pod{
		{Namespace: "ns1", Name: "pod1", Labels: map[string]string{"app": "l1"}},
		{Namespace: "ns2", Name: "pod2", Labels: map[string]string{"app": "l2"}},
	} {
		if err := pods.Put(p); err != nil {
			return err
		}
	}
	snapshot := pods.Snapshot()

	// Keys are sorted, so the objects of a namespace are a range of them.
	for key, p := range snapshot.Prefix("ns1/") {
		fmt.Fprintln(out, "in ns1:", key, p.Name)
	}
	fmt.Fprintln(out, "app=l1:", slices.Collect(byApp.Keys(snapshot, "l1")))
	for key, p := range byApp.Get(snapshot, "l2") {
		fmt.Fprintln(out, "app=l2:", key, p.Labels)
	}
	fmt.Fprintln(out, "apps:", slices.Collect(byApp.Values(snapshot)))

	// Later changes appear only in later snapshots.
	if err := pods.Put(&pod{Namespace: "ns1", Name: "pod3", Labels: map[string]string{"app": "l1"}}); err != nil {
		return err
	}
	fmt.Fprintln(out, "app=l1 then:", slices.Collect(byApp.Keys(snapshot, "l1")))
	fmt.Fprintln(out, "app=l1 now:", slices.Collect(byApp.Keys(pods.Snapshot(), "l1")))
	return nil
}
