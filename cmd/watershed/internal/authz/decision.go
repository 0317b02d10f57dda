// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package authz

// Decision is the answer of a cluster to the question whether a user may make a request.
type Decision struct {
	Allowed bool
	// Reason is the text that the cluster gives for the decision, often "".
	Reason string
}
