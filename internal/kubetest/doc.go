// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kubetest is the world that tests run in: real Kubernetes control
// planes on loopback, the faults that befall them, and the load that fills
// them. Nothing in it is a fake: etcd, kube-apiserver and the others are built
// from source by the kubebuild command (make kube) and run as child processes.
//
//	c := kubetest.Start(t, nil)              // etcd and kube-apiserver, about 5 s
//	client, err := kubernetes.NewForConfig(c.Config())
//	out, err := c.Kubectl(ctx, "get", "ns")
//
// Kubernetes is the version that the checkout requires unless the environment
// variable [binaries.VersionVariable] names another that was built (make kube
// VERSION=v1.33.13). Older servers lack features, sendInitialEvents of watches
// among them: a test that needs one skips where the server says that it has not.
//
// # Promises
//
//   - A [Cluster] that New or Start returned serves: the API server is ready,
//     access control is on, the default namespace exists and, if nodes were
//     asked for, they are Ready.
//   - What etcd holds is the truth: [Cluster.Truth] reads it at one revision, and
//     an object's resourceVersion is the revision that etcd last changed it at.
//   - A killed [Process] started again has the same address and the same data.
//     That holds without [Options.Durable] too: data that was written but not
//     synced survives the process, only not the machine.
//   - Clusters share nothing. Any number may run at once, in one test process or
//     in several: ports are reserved before they are used.
//   - On Linux no component outlives the process that started it, even when that
//     panics or is killed. Elsewhere only an ordinary end cleans up.
//
// # What blocks
//
// New, Start, [Process.Start] and [Cluster.Expire] wait for processes to be
// ready and take seconds; their context bounds the wait. Kill and Close wait
// until the processes are gone. [Proxy.Close] waits for its goroutines.
//
// # Ownership
//
// A cluster belongs to who started it. Start's cluster ends with its test, and
// on a failure the ends of the component logs go to the test's log. New's
// cluster ends with Close. The folder named by [Options.Dir] is the caller's and
// stays; a folder that New made goes with Close. Configs and objects that
// methods return are the caller's to change.
//
// # Bounds
//
// An idle API server takes about 280 MB and, with 30,000 pods that are listed,
// several GB. Errors carry at most 4 KiB of a component's log; the logs
// themselves grow as they like until the folder goes. A proxy holds at most
// 2 MiB per direction of a connection.
package kubetest
