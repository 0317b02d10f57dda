// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package collection holds resources of a fleet. A [Collection] holds one resource of all clusters: the
// newest state of each cluster, one log with the changes of all clusters, and the revisions of the states
// and of the changes. A [Catalog] has the collections of a fleet. A [Follower] reads a collection for one
// reader: the state at one moment, and the changes after this state.
package collection
