// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package view reads a resource of the fleet's copy for one request: the state at a version, the pages
// of a list, and the events of a watch. [Cluster] reads one cluster, with the versions of the cluster's
// API server. [Fleet] reads all clusters, with versions that the fleet issues. The package does not
// handle HTTP or encodings: it returns objects, and the errors of the Kubernetes API.
//
// # Guarantees
//
// A [State] of one cluster is a state that its API server had. A state of the fleet has one such state
// per cluster. While a resource of a cluster is relisted, the objects of that cluster can be a mix of those
// from before and after the relist. A [Watch] that begins at the version of a state yields exactly
// the changes after this state that the [Matcher] selects.
//
// # What blocks
//
// For one cluster, [View.NotOlder] and [View.Exact] wait up to 3 s for a version that the copy has
// not reached, as kube-apiserver does. For the fleet they do not wait. [Watch.Next] waits for
// changes.
//
// # Bounds and ownership
//
// A [State] keeps its objects in memory. [Pins] keep at most 32 states, each for 2 minutes, so that the
// next page of a list comes from the same state as the page before.
package view
