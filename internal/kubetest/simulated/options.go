// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"
	"time"
)

// Options configure the simulation. nil and the zero value are the defaults.
type Options struct {
	// Clusters is the number of clusters, each at its own address. Default: 1.
	Clusters int

	// Pods is how many pods each cluster begins with. Default: 10,000.
	Pods int

	// Namespaces is the number of namespaces of a cluster's pods. Default: 100.
	Namespaces int

	// Types is the number of custom types without objects that each cluster serves in
	// addition, in the group [EmptyGroup]: each costs as much as a watch. Default: 0.
	Types int

	// Bookmarks is the time between two bookmarks of a watch. Default: 1 minute, as in
	// the real server.
	Bookmarks time.Duration

	// History is how many changes a cluster keeps. A watch that falls further behind is
	// ended, and one that begins further back is refused. Default: 4,096.
	History int

	// Seed makes the ids, addresses and images of one server's clusters differ
	// from another's. Default: 0.
	Seed uint64
}

// The largest numbers that fit into names of constant length: the length of a pod does
// not depend on its number.
const (
	maxPods       = 1_000_000
	maxNamespaces = 1_000
	maxTypes      = 1_000
	maxClusters   = 60_000
)

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.Clusters == 0 {
		d.Clusters = 1
	}
	if d.Pods == 0 {
		d.Pods = 10_000
	}
	if d.Namespaces == 0 {
		d.Namespaces = 100
	}
	if d.Bookmarks == 0 {
		d.Bookmarks = time.Minute
	}
	if d.History == 0 {
		d.History = 4_096
	}
	return d
}

func (o *Options) validate() error {
	for _, v := range []struct {
		what      string
		n, lo, hi int
	}{
		{"clusters", o.Clusters, 1, maxClusters},
		{"pods", o.Pods, 1, maxPods},
		{"namespaces", o.Namespaces, 1, maxNamespaces},
		{"types", o.Types, 0, maxTypes},
		{"changes of history", o.History, 1, 1 << 30},
	} {
		if v.n < v.lo || v.n > v.hi {
			return fmt.Errorf("options: %d %s, not between %d and %d", v.n, v.what, v.lo, v.hi)
		}
	}
	if o.Bookmarks < 0 {
		return fmt.Errorf("options: bookmarks every %s", o.Bookmarks)
	}
	return nil
}
