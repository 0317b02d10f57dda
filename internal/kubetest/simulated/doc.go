// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package simulated serves the Kubernetes API of many clusters from one process
// and little memory, for sizes that the real server does not reach on one
// machine: 1,000 clusters of 10,000 pods each. For everything smaller there is
// the real one, see [kubetest].
//
//	s, err := simulated.New(&simulated.Options{Clusters: 1000})
//	defer s.Close()
//	client, err := kubernetes.NewForConfig(s.Cluster(7).Config())
//	version := s.Cluster(7).Touch(42) // pod 42 in the order of lists
//	changes := s.Churn(ctx, 1000)     // per second, over all clusters
//
// # What is simulated
//
// Each cluster has a loopback address, a token, pods, namespaces and versions of
// its own, and speaks HTTP/2 with TLS. It answers GET, LIST and WATCH as
// kube-apiserver 1.37 does: paging with consistent pages, the ways to ask for a
// resourceVersion and the answers to versions that are too old or not there yet,
// initial events with their bookmark, protobuf and JSON, metadata only, gzip,
// discovery in both forms. Tests send the same requests to it and to the real
// server and compare the answers.
//
// The pods are those of a [kubetest.Workload], rendered once and shared by all
// clusters. When a pod is sent, ids, addresses, images, times and versions are
// put over those of the template. They derive from the cluster, the owner and the
// pod, and differ exactly where a workload's do, so that they compress as badly.
// Only their lengths do not vary: addresses have the digits that most have.
//
// A cluster's state is the version of each pod and the latest changes
// ([Options.History]). What a pod was at any version of that history follows from
// them.
//
// # What is not
//
//   - Writes: clusters change by [Cluster.Touch] and its like. Discovery tells
//     only the verbs that there are, and no subresources.
//   - Selectors: they are refused with 400. Tables, YAML, CBOR, weights in Accept
//     headers, the pretty parameter, protobuf of discovery, metadata as v1beta1
//     and the paths below /api/v1/watch: what is left is served or answered with
//     404 or 406.
//   - Other resources than pods, namespaces, custom resource definitions and API
//     services, of which only the first two have objects, and the custom types of
//     [Options.Types], which have none. The namespaces default and kube-system
//     are missing.
//   - Access control: the token opens everything, without it everything is 401.
//     There are no anonymous requests, limits of rate, audit ids and ETags.
//   - The time between a write and its visibility, and a server's cold start.
//     Bookmarks come even when nothing happened. A watch that asks for
//     PartialObjectMetadataList is refused, not silent.
//
// # Promises
//
//   - The same options give the same clusters, with the same versions, except for
//     addresses and certificates.
//   - A list is what there was at its version, however long it takes and however
//     many pages it has. A watch sends every change after its version, in order
//     and once, or ends. The bookmark after initial events has the version that
//     they are of.
//   - All that listens, listens on loopback.
//   - [Server.Close] returns when no goroutine of the server is left.
//
// # Bounds
//
// A cluster of 10,000 pods takes 44 KB, and 12 bytes for each change in its
// history. A connection takes about 40 KB and an idle watch about 18 KB, nearly
// all of them net/http's. An answer under way holds a buffer of 80 KB, the
// versions of its pods and, when compressed, the compressor. Nothing is queued
// for clients that are slow: a watch that is further behind than the history goes
// back is ended, as the real server does.
//
// Making a pod takes 1 to 2 µs, in JSON a little more, compressing it 10 to 15 µs.
// What TLS and HTTP/2 make of it costs several times that.
package simulated
