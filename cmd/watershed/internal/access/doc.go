// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package access decides which requests the program answers. It implements the hooks of
// package replica.
//
// The cluster that a request addresses decides about it, for the caller as that cluster
// knows them:
//
//   - A [Control] has a guard for each connection to each cluster. The guard authenticates
//     callers with the cluster's own certificate authority and TokenReviews, and asks the
//     cluster whether a request is allowed. A cluster that leaves, is replaced or gets
//     other credentials also gets another guard, so no decision outlives its cluster.
//   - A request below /fleet has one identity, from one home cluster or from OpenID
//     Connect. Each member decides whether that identity may read there; only names that
//     the operator allows cross to other members (see [Crossing]).
//   - The owner is the person that runs the server on their own machine: a caller with the
//     token in the state directory. Each cluster is asked about the credentials in the
//     owner's kubeconfig. There is an owner only if the server listens on a loopback
//     address.
//   - The right of a watch is checked again while it runs, and the watch ends when the right
//     is lost.
//
// If a cluster does not answer a review, the caller gets 503, never a 401 or a 403. The owner
// may still read: the copy was read with the owner's credentials. Requests
// without credentials are refused, except for the health of the process.
package access
