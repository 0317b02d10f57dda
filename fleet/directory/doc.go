// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package directory has the sources of clusters for a fleet. Each implements
// [fleet.Directory]:
//
//   - [Kubeconfig]: the contexts of kubeconfig files
//   - [KubeconfigDir]: the kubeconfig files in a directory
//   - [InCluster]: the cluster that the program runs in
//   - [ClusterAPI]: the clusters that Cluster API manages from a hub cluster
//   - [ClusterProfile]: the ClusterProfiles on a hub cluster
//   - [Static]: clusters that the program sets
//   - [Join]: the clusters of several of these, which can be replaced while it is followed
//
// For example:
//
//	clusters := directory.NewJoin([]directory.Part{
//		{Name: "contexts", Directory: directory.NewKubeconfig(nil)},
//		{Name: "files", Directory: directory.NewKubeconfigDir("/etc/clusters", nil)},
//	}, nil)
//	f, err := fleet.New(clusters, nil)
//
// # Guarantees
//
// A source reports all its clusters at once: sorted by name, each name once. It reports
// them again only after a change that a fleet can observe: a name, a server, its
// credentials, a scope or an error. A change of a file is reported after the file has
// settled, so that a partly written kubeconfig is not used.
//
// A source that cannot be read keeps the clusters of its last report. A cluster is
// removed only if a source was read and does not have it, or was removed from a [Join]. A
// source that replaces another one in a Join has to be read first. A cluster whose own
// credentials cannot be read is reported with [fleet.Entry.Err], and the fleet keeps its
// connection. The method Err of a source returns why it cannot be read at present.
//
// Errors and log lines do not contain credentials. Kubeconfigs from a hub cannot run
// commands or read files of this machine.
//
// # What blocks
//
// Only Follow blocks, until its context ends. It waits for notify to return before it
// reads the source again. Constructors do not read files or send requests.
//
// # Bounds and ownership
//
// Follow starts the goroutines that it needs and waits for them before it returns: none
// for Static and for sources that read files, two for each informer on a hub, and one
// for each part of a Join. A source keeps its last entries, a few KB for each cluster.
// The callee of notify owns the entries that it receives, and callers keep what they
// pass to constructors and to [Static.Set]. Files are polled every 2 seconds with a
// stat of each.
package directory
