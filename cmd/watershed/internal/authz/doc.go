// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package authz decides whether a user of one cluster may make a request. A [Reviewer] sends
// a SubjectAccessReview to the cluster and caches the decision for 10 s. A [Local] evaluates a
// copy of the cluster's RBAC objects, and uses a Reviewer for all that RBAC alone cannot
// decide.
//
// # Guarantees
//
// A Reviewer allows only what the cluster has allowed within the cache time. A Local also allows
// what the copy of the cluster's RBAC objects allows. A failure is never a decision: if the cluster
// cannot be reached, the error has the status 503.
//
// A decision that was requested before [Reviewer.Flush] is not used afterwards.
//
// # What blocks
//
// Authorize waits for a review until its context ends, and at most for [Options.Deadline].
// Concurrent requests with the same question share a review. A decision from the cache
// or from [Local] does not wait for the cluster.
//
// # Bounds and ownership
//
// A Reviewer and a Local belong to one connection to one cluster. Their owner closes them when
// that connection changes, so no cached decision survives it. The cache is bounded in entries
// and bytes, and so are the reviews in flight and the background comparisons.
package authz
