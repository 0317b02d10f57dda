// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package verification lets callers of a server compare its copies with the clusters, and
// repair them. It serves this as a resource that the program answers itself: a client
// creates a [Verification], and receives it with its results.
//
// # Guarantees
//
// A request concerns only the clusters that the caller sees: each cluster decides whether
// the caller may create verifications.watershed.dev, and the owner of the server may. With
// dryRun=All nothing is compared, and the results name what would be. What was never read has
// a result too, with an error. The server stores nothing.
//
// With Replicas, a copy is compared with those of the other replicas of the group, at the newest version
// that both have. Replicas tell each other hashes of keys and UIDs, and versions, and no names.
// [Replicas.Run] does the same in the background, and finds copies that do not go on.
//
// # What blocks
//
// A request takes as long as its comparisons, one after the other. It ends with its client. An
// [Answerer] answers one question of another replica at a time.
//
// # Bounds and ownership
//
// Four requests run at once, any more are refused with 429. The comparisons stay within the
// budgets of their clusters, see [fleet.Member.Verify]. A comparison with another replica takes 20 bytes for
// each object while it runs, and about 100 if the copies differ. Run uses half a percent of a core.
package verification
