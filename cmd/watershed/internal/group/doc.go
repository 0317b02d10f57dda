// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package group makes a process one of the replicas of a group. Each replica holds a Lease in one
// cluster, with a slot in its name: whoever created the Lease, or replaced its holder at the
// resourceVersion that it had read, owns the slot. The versions of /fleet that a replica issues
// have its slot, so that no two replicas issue the same one.
//
// # Guarantees
//
// A Lease has a bound, and a version of its slot is shown to a client only if it is below the
// bound that the API server has stored last. Whoever replaces a holder begins above the bound that
// it replaced. So no version is shown twice, also if the former holder does not know yet that
// it has lost the slot. Nobody compares clocks: a replica counts how long a Lease has not changed on
// its own monotonic clock, and takes the time of versions from the Date of the API server's
// responses.
//
// A Lease that was deleted by hand leaves no bound. Whoever creates it again begins later than
// its former holder can be by the clock; and there are [fleet.GroupSlots] slots to choose from.
//
// # What blocks
//
// [Replica.Run] sends all requests. All other methods return at once, and are safe for concurrent
// use.
//
// # Bounds and ownership
//
// A replica has one goroutine, which sends two requests in two seconds: it renews its Lease and
// lists the Leases of the group. It keeps about 300 bytes for each of them, and there are at most as
// many as slots. A Lease that has expired and whose bound has passed is deleted.
package group
