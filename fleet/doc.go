// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package fleet mirrors many clusters and reads across them as if they were one. It
// mirrors what can be listed and watched in them, or a part of it, see [Options.Resources].
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
// A [Directory] lists the clusters; package fleet/directory has the implementations. Each
// cluster is a [Member] of the [Fleet]. It runs discovery, mirrors each resource with one
// list and one watch, and runs discovery again when custom types, aggregated APIs or the
// server itself change. A [View] reads one resource of all members.
//
// # Guarantees
//
//   - One watch per resource and cluster, whatever the number of readers. A second watch
//     runs while a resource changes its version or encoding. Readers never reach an API
//     server.
//   - A cluster's part of a [Snapshot] is one state that the cluster had, except while the
//     resource is listed again: then the snapshot has objects of the list and objects from
//     before the list. A [history.Feed] has no such mixture. Clusters are not synchronized
//     with each other.
//   - The changes that [View.Watch] yields always lead from the state that it yielded
//     before to the current state. Each cluster's changes are in its own order. A reader
//     that is too slow, or sees a cluster join or leave, receives the differences between
//     two states.
//   - The objects of a resource can be read once its first list in a cluster is complete,
//     or once its stored state is loaded from files. They stay in their last known state
//     while the cluster cannot be reached: [Status.Since] is when that began. The objects of a resource that is no
//     longer served, and of a cluster that has left the directory, are removed and their
//     memory is freed.
//   - A cluster whose credentials change continues from the version that it had. If a
//     name or an address now leads to another cluster, the old objects stay readable
//     until the new ones have synced: see [Identity].
//   - Names that lead to one cluster are one member: see [Member.Aliases]. A copy may be
//     limited to a namespace or a selector: see [Scope].
//   - With [Options.Disk], a restart continues from files. With [Options.History] too,
//     package replica reads the past: see [Member.Feed]. A state of the past is exact, or
//     an error.
//   - Clusters and resources do not wait for each other. [Budget] limits how many
//     resources of a cluster are listed at once, and for how long a silent list counts,
//     and [Options.Lists] how many of all clusters.
//
// # What blocks
//
// [Fleet.Run], [Fleet.WaitForSync], loops over [View.Watch], [Follower.Next], [Member.Verify]
// and [Member.Changes]. [View.Get] does not take the lock of the collection; if it has to decode the
// object, it takes the lock of the decoded values for a moment. A [Snapshot] takes the lock of the
// collection, which a mirror holds while it publishes a batch. [IndexBy] reads every object.
//
// # Bounds and ownership
//
// A resource of a cluster costs two goroutines, one of them net/http's, and some 20 KB,
// even if it has no objects. A cluster costs a goroutine, a connection with one more, and
// the watches of its custom types and aggregated APIs. Only the metadata of these is
// read, unless they are mirrored too. An object costs the same as in a packed informer.
// docs/scale.md has the figures. [Limits] bound what one cluster can take.
package fleet
