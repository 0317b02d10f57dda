// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package verification lets callers of a server compare its copies with the clusters, and
// repair them. The resource is not in any cluster, the server itself answers it: a client
// creates a [Verification], and the response has the results.
//
// # Guarantees
//
// A request concerns only the clusters that the caller sees: each cluster decides whether
// the caller may create verifications.watershed.dev, and the owner of the server may. With
// dryRun=All nothing is compared, and the results name what would be. A cluster that was
// never read has one result, with an error. The server stores nothing.
//
// With Replicas, a copy is compared with the copies of the other replicas of the group, at the newest
// version that both have. Replicas send each other the cluster, the resource, versions, and hashes of keys and
// UIDs, but no names of objects. [Replicas.Run] compares copies in the background. [Replicas.Reached]
// records how far other replicas have come, and [Replicas.Problems] reports copies that differ or have
// stopped.
//
// # What blocks
//
// A request runs its comparisons one after the other. It is cancelled when its client
// disconnects. An [Answerer] answers one question of another replica at a time.
//
// # Bounds and ownership
//
// At most four requests run at once; further requests get 429. The comparisons stay within the
// budgets of their clusters, see [fleet.Member.Verify]. A comparison with another replica takes 20 bytes for
// each object while it runs, and about 100 if the copies differ. Run uses half a percent of a core.
package verification
