// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package overload bounds the work that the server does at the same time, and divides it
// fairly between users.
//
// A [Limiter] has a number of units. A request holds units while it is served: a GET holds
// one, a LIST holds more if it has more objects. A request that does not fit waits in the
// queue of its user for some seconds. If it still does not fit, it is rejected with status
// 429 and Retry-After, as kube-apiserver does.
//
// # Guarantees
//
//   - A user gets more units only while it holds fewer than are free. So k users that send
//     as much as they can hold 1/(k+1) of the units each, and 1/(k+1) stays free. A request
//     of another user is served at once, however many requests the others have queued, and
//     even if none of their requests ever ends (clients that read slowly).
//   - If no unit is free, waiting users take turns, one request each. A request waits for at
//     most one request of each other user that waits, not for their whole queues.
//   - The total queue is never filled by the user with the longest one: if it is full, a
//     request of a user with a shorter queue replaces the last request of the longest.
//   - A request whose context ends, because its client has disconnected or for any other
//     reason, leaves the queue.
//   - A list that takes much longer than its work counts as slow: its client reads slowly.
//     It then holds no units, so that fifty slow clients do not make others wait. The number
//     of such lists is bounded, by the same rule.
//   - Watches are long. They hold units only while they start. After that they count only
//     against the number of watches, which is bounded in total and per user by the same rule.
//     A watch with long selectors takes more memory, and counts as several.
//
// # What blocks
//
// [Limiter.Admit] and [Limiter.AdmitWatch] block for at most [Options.MaxWait]. They wait in
// the goroutine of the request, and the package starts no goroutines.
//
// # Bounds and ownership
//
// A user takes memory only while it has a request in flight, a waiting request or a watch:
// about 130 bytes, and at most 256 bytes for its name. A waiting request takes about 210
// bytes here and a timer, besides its goroutine and its stream. An admitted request takes
// about 75 bytes. The numbers of all of these are bounded by [Options].
//
// # Why not API Priority and Fairness
//
// kube-apiserver protects itself with k8s.io/apiserver's flowcontrol (APF). APF has
// priority levels and flow schemas, which are objects in the cluster: a replica of many
// clusters would have to choose the objects of one of them, and administrators of that
// cluster could then lock out the users of the others. It links k8s.io/apiserver, which is
// 54 more modules. It hands each request to one of a few queues by hashing (shuffle
// sharding), so two users can share a queue, with a small probability. Here each user has
// its own queue, because the number of users with work is bounded. APF dispatches by virtual
// time, which divides the seats by service time. Here users take turns, and the rule for
// free units divides the units. APF lets one flow use all seats of its level, so flows that
// hold their seats for long (slow clients) delay every other flow until they end. Here some
// units always stay free for a user that has none. The price is that a single user can use
// only about half of the units, so [Options.Units] is twice the concurrency that one user
// should have. Both charge a LIST by its number of objects, and both count watches only
// while they start.
package overload
