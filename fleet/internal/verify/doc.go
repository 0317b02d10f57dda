// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package verify compares the copy of a resource with its API server. A [Verifier] lists the resource
// at the version of the copy, compares the versions of all objects, or also their content, and can
// make the copy list the resource again. The result is a [Verification].
//
// # Guarantees
//
//   - A divergence is reported only if no history of the object explains it: if the list is at another
//     version than the copy, the differences that a change in between can cause are undecided.
//   - Nothing is decoded, unless the content is compared.
//
// # What blocks
//
// [Verifier.Enter] waits for the verification of another resource of the member, [Verifier.Verify] for
// the pages of the list and, if it repairs, up to five minutes for the copy. [Rounds] verifies on a
// schedule until its context ends.
//
// # Bounds and ownership
//
// A comparison keeps some 60 bytes for each object until it ends. A list that has more than twice the
// objects of the copy, and 100,000 more, is given up.
package verify
