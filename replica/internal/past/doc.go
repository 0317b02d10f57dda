// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package past answers requests for the past of a cluster or of the fleet: a state at a time (the parameter
// at), the changes of objects in a period (the parameter changes), and how many changes there were (the path
// [document.ChangesPath]). The states and changes come from package internal/history. This package reads the
// parameters, decides what the caller may read of them, bounds what all requests hold, and writes the documents.
//
// # Guarantees
//
// A caller needs today's rights. A namespace may have been deleted and created again since, for others: what
// is from before its creation is shown only to callers that may read all namespaces. A response names the
// clusters, and the periods, that it lacks.
//
// # What blocks
//
// Few requests read files at once, and the others wait for them. A right that is not known is asked for with
// [Rights], which may wait for a cluster.
//
// # Bounds and ownership
//
// All requests together hold about 25 MB of objects until their clients have read them, fairly between users.
// A request that does not fit gets a 429. A response below /fleet has at most 50,000 objects or numbers, and
// 16 MiB of first changes.
package past
