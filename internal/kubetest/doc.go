// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kubetest runs real Kubernetes control planes on loopback for tests, with faults
// and load. Nothing in it is a fake: etcd, kube-apiserver and the others are built from
// source by the kubebuild command (make kube) and run as child processes.
//
//	c := kubetest.Start(t, nil)              // etcd and kube-apiserver, about 5 s
//	client, err := kubernetes.NewForConfig(c.Config())
//	out, err := c.Kubectl(ctx, "get", "ns")
//
// Kubernetes has the version that the checkout requires, unless the environment variable
// [binaries.VersionVariable] selects another one that was built (make kube
// VERSION=v1.33.13). Older servers lack features, such as sendInitialEvents of watches: a
// test that needs such a feature is skipped if the server does not have it.
//
// # Guarantees
//
//   - A [Cluster] that New or Start returned serves requests: the API server is ready,
//     access control is on, the default namespace exists and the requested nodes are
//     Ready.
//   - The content of etcd is the truth: [Cluster.Truth] reads it at one revision, and
//     an object's resourceVersion is the revision of its last change in etcd.
//   - A [Process] that is killed and started again has the same address and the same
//     data. That holds without [Options.Durable] too: data that was written but not
//     synced survives the process, but not the machine.
//   - Clusters share nothing. Any number may run at once, in one test process or in
//     several: ports are reserved before they are used.
//   - On Linux no component outlives the process that started it, even if that process
//     panics or is killed. On other systems only an ordinary end cleans up.
//
// # What blocks
//
// New, Start, [Process.Start] and [Cluster.Expire] wait until processes are ready, which
// takes seconds; their context bounds the wait. Kill and Close wait until the processes
// are gone. [Proxy.Close] waits for its goroutines.
//
// # Bounds and ownership
//
// The caller that started a cluster owns it. The cluster of Start ends with its test and,
// if the test fails, the ends of the component logs are written to the test's log. The
// cluster of New ends with Close. The folder in [Options.Dir] belongs to the caller and
// is kept; a folder that New created is removed by Close. The caller may modify the
// configs and objects that methods return.
//
// An idle API server takes about 280 MB and, with 30,000 pods that are listed, several
// GB. Errors contain at most 4 KiB of a component's log. The logs themselves are not
// bounded until the folder is removed. A proxy holds at most 2 MiB per direction of a
// connection.
package kubetest
