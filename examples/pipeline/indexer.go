// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/watershed-project/watershed/examples/internal/terminal"
	"github.com/watershed-project/watershed/store"
)

// labelledPod is an object that an index can select.
type labelledPod struct {
	Namespace, Name string
	Labels          map[string]string
}

func labelledPodKey(p *labelledPod) string { return p.Namespace + "/" + p.Name }

// indexer is the step indexer: a store, reading by namespace, which does not need an index,
// and an index on a label.
func indexer() { terminal.MainAlone(runIndexer) }

func runIndexer(_ context.Context, out io.Writer) error {
	pods := store.New(labelledPodKey, nil)
	// An index is a value, not a name, so a missing index cannot be queried.
	byApp := store.NewIndex(pods, "app", func(p *labelledPod) ([]string, error) {
		return []string{p.Labels["app"]}, nil
	})
	for _, p := range []*labelledPod{
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
	if err := pods.Put(&labelledPod{
		Namespace: "ns1", Name: "pod3", Labels: map[string]string{"app": "l1"},
	}); err != nil {
		return err
	}
	fmt.Fprintln(out, "app=l1 then:", slices.Collect(byApp.Keys(snapshot, "l1")))
	fmt.Fprintln(out, "app=l1 now:", slices.Collect(byApp.Keys(pods.Snapshot(), "l1")))
	return nil
}
