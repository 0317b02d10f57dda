// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package simulated serves the Kubernetes API of many clusters from one process with
// little memory, for sizes that the real server does not reach on one machine: 1,000
// clusters of 10,000 pods each. For smaller sizes use the real server, see [kubetest].
//
//	s, err := simulated.New(&simulated.Options{Clusters: 1000})
//	defer s.Close()
//	client, err := kubernetes.NewForConfig(s.Cluster(7).Config())
//	version := s.Cluster(7).Touch(42) // pod 42 in the order of lists
//	changes := s.Churn(ctx, 1000)     // per second, over all clusters
//
// # What is simulated
//
// Each cluster has its own loopback address, token, pods, namespaces and versions, and
// speaks HTTP/2 with TLS. It responds to GET, LIST and WATCH like kube-apiserver 1.37:
// paging with consistent pages, the ways to request a resourceVersion and the responses
// to versions that are too old or not reached yet, initial events with their bookmark,
// protobuf and JSON, metadata only, gzip, discovery in both forms. Tests send the same
// requests to it and to the real server and compare the responses.
//
// The pods are those of a [kubetest.Workload], rendered once and shared by all clusters.
// When a pod is sent, ids, addresses, images, times and versions replace those of the
// template. They derive from the cluster, the owner and the pod, and differ exactly where
// those of a workload do, so that they compress as badly. Only their lengths do not vary:
// addresses have the most common number of digits.
//
// The state of a cluster is the version of each pod and the latest changes
// ([Options.History]). The state of a pod at any version of that history follows from
// them.
//
// # What is not
//
//   - Writes: clusters change by [Cluster.Touch] and similar methods. Discovery lists
//     only the verbs that are served, and no subresources.
//   - Selectors: they are refused with 400. Tables, YAML, CBOR, weights in Accept
//     headers, the pretty parameter, protobuf of discovery, metadata as v1beta1
//     and the paths below /api/v1/watch: the request is served without them, or
//     answered with 404 or 406.
//   - Other resources than pods, namespaces, custom resource definitions and API
//     services, of which only the first two have objects, and the custom types of
//     [Options.Types], which have none. The namespaces default and kube-system
//     are missing from lists; a get of the latter returns the UID of the cluster.
//   - Access control: the token allows everything, and without it everything is 401.
//     There are no anonymous requests, rate limits, audit ids and ETags.
//   - The time between a write and its visibility, and a server's cold start.
//     Bookmarks are sent even when nothing happened. A watch that requests
//     PartialObjectMetadataList is refused, not silent.
//
// # Guarantees
//
//   - The same options result in the same clusters, with the same versions, except for
//     addresses and certificates.
//   - A list is the state at its version, however long it takes and however many pages
//     it has. A watch sends every change after its version, in order and once, or ends.
//     The bookmark after initial events has their version.
//   - All listeners are on loopback.
//   - [Server.Close] returns when no goroutine of the server is left.
//
// # Bounds and ownership
//
// A cluster of 10,000 pods takes 44 KB, and 12 bytes for each change in its history. A
// connection takes about 40 KB and an idle watch about 18 KB, nearly all of it in
// net/http. A response in progress holds a buffer of 80 KB, the versions of its pods and,
// if it is compressed, the compressor. Nothing is queued for slow clients: a watch that
// falls behind the history is ended, as the real server does.
//
// Making a pod takes 1 to 2 µs, in JSON a little more, and compressing it 10 to 15 µs.
// TLS and HTTP/2 cost several times that.
package simulated
