// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package audience determines which clusters of the fleet the caller of a request sees. [Visible] is the
// answer for one request, made from the decision of a hook. [Membership] gives each set of members an
// identity, to which continue tokens, versions and discovery documents are bound, and ends watches when
// the members of the fleet or their labels change: only the hook knows whether the caller may see the
// new ones.
//
// # Guarantees
//
// A member that the caller does not see is absent, except from a number in a warning. While a member
// replaces another one, its objects are not read under the name of the old one.
//
// # What blocks
//
// Nothing waits. A [Membership] has a lock for the time of a few map lookups.
//
// # Bounds and ownership
//
// A [Membership] has some 50 bytes for each member of the fleet. It ends watches at most every 10 s.
package audience
