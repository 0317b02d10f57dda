// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fleet mirrors many clusters, everything in them that can be listed and
// watched or a part of it, and reads across them as if they were one.
//
//	f, err := fleet.New(directory.NewKubeconfig(nil), &fleet.Options{Resources: []string{"pods", "*.apps"}})
//	go f.Run(ctx)
//	err = f.WaitForSync(ctx)
//
//	pods, err := fleet.Of[*corev1.Pod](f)
//	byNode := fleet.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
//	for key, pod := range byNode.Get("node-7") { … }            // in all clusters
//	for key, pod := range pods.In("eu-1", "us-2").All() { … }   // in two of them
//	for c := range pods.Watch(ctx) { … }                        // clusters come and go: Added, Deleted
//
// A [Directory] lists the clusters; package fleet/directory has the implementations.
// Each cluster is a [Member] of the [Fleet]. It runs discovery, mirrors each resource
// with one list and one watch, and runs discovery again when custom types, aggregated
// APIs or the server itself change. A [View] reads one resource of all members.
//
// # Promises
//
//   - One watch per resource and cluster, whatever the number of readers. Readers
//     never reach an API server.
//   - A cluster's part of a [Snapshot] is one state that the cluster had. Clusters
//     are not in step with each other: nothing makes them.
//   - What [View.Watch] yields always leads from what it yielded before to what there
//     is. Each cluster's changes are in its own order. A reader that is too slow, or
//     has a cluster join or leave, is given differences.
//   - A resource's objects can be read once it has synced in a cluster, not before,
//     and stay as they were last known while the cluster cannot be reached:
//     [Member.Status] says since when. What is no longer served, and a cluster that
//     has left the directory, goes, and its memory with it.
//   - A cluster whose credentials change goes on from the version it had. A name that
//     leads to another server, or an address that leads to another cluster, keeps its
//     objects until those of the other are there: see [Identity].
//   - Names that lead to one cluster are one member: see [Member.Aliases]. A copy may
//     be limited to a namespace or a selector: see [Scope].
//   - No cluster and no resource waits for another: see [Budget] for what limits how
//     many are read at once, and for how long a silent one counts.
//
// # What blocks
//
// [Fleet.Run] and the functions that wait. Reading takes no lock that is held for
// longer than it takes to copy a pointer for each cluster; [IndexBy] looks at every
// object.
//
// # Costs
//
// A resource of a cluster costs three goroutines, one of them net/http's, and some
// 44 KB, whether there is anything in it or not; a cluster a goroutine, a connection
// with one more, and the watches of its custom types and aggregated APIs, of whose
// objects only the metadata is read unless they are mirrored too. An object costs
// what a packed informer's does. docs/scale.md has the figures.
package fleet
