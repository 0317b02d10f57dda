// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package view reads a resource of the fleet's copy for one request: states at a version,
// pages of lists, and the events of watches. [Cluster] reads one cluster with the versions
// of its API server, and [Fleet] reads all clusters with versions of its own. The package
// knows nothing of HTTP and of bytes: it returns objects, and the errors of the Kubernetes
// API.
//
// # Guarantees
//
// A [State] of one cluster is one that its server had. A state of the fleet has such a state of each
// cluster, except of a cluster whose resource is being listed again. A [Watch] that begins at the version of a state
// yields exactly the changes after it that the [Matcher] selects.
//
// # What blocks
//
// For one cluster, [View.NotOlder] and [View.Exact] wait up to 3 s for a version that the copy has
// not reached, as kube-apiserver does. For the fleet they do not wait. [Watch.Next] waits for
// changes.
//
// # Bounds and ownership
//
// A state keeps the objects that it has in memory. [Pins] keep at most 32 states for the
// next pages of lists, for 2 minutes.
package view
