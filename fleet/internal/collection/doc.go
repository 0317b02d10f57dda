// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package collection has one resource of all clusters of a fleet: the newest state of each
// cluster, one log of their changes, and the revisions of both. The [Catalog] of a fleet has its
// collections. A [Follower] reads one for one reader: its state at one moment, and the changes
// after it.
package collection
