// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package past answers requests for the past of a cluster or of the fleet: a state at a time (the parameter
// at), the changes of objects in a period (the parameter changes), and how many changes there were (the path
// [document.ChangesPath]). The states and changes come from package internal/history. This package reads the
// parameters, decides which states and changes the caller may read, limits the memory of all requests together,
// and writes the documents.
//
// # Guarantees
//
// A caller needs today's rights. A namespace may have been deleted since, and created again for other users. So
// the past from before its creation is shown only to callers that may read all namespaces. A response names the
// clusters and the periods that are missing from it.
//
// # What blocks
//
// Only a few requests read files at the same time; the others wait. [Rights] decides whether the caller may read,
// and may wait for a cluster.
//
// # Bounds and ownership
//
// All requests together hold about 25 MB of objects until their clients have read them, fairly between users.
// A request that does not fit gets a 429. A response below /fleet has at most 50,000 objects or counts. The first
// parts of the changes that it reads from the clusters have at most 16 MiB together.
package past
