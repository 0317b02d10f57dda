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
// A [State] is one that each server had. A [Watch] that begins at the version of a state
// yields exactly the changes after it that the [Matcher] selects.
//
// # What blocks
//
// [View.NotOlder] and [View.Exact] wait up to 3 s for a version that the copy has not
// reached, as kube-apiserver does. [Watch.Next] waits for changes.
//
// # Bounds and ownership
//
// A state keeps the objects that it has in memory. [Pins] keep at most 32 states for the
// next pages of lists, for 2 minutes.
package view
