// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package rbac evaluates the RBAC objects of one cluster: Roles, ClusterRoles and their
// bindings. Decisions and reasons are those of kube-apiserver's RBAC authorizer: the module in
// the directory oracle compares the two with random policies and requests.
//
// # Guarantees
//
// A decision sees every object either before or after a change, never a part of it. A change
// of a role is visible to the next decision through every binding that refers to it.
// Aggregated ClusterRoles are evaluated as they are stored, because a controller of the
// cluster writes the combined rules into them.
//
// RBAC is only one of the authorizers of a cluster. A decision of this package does not
// include the group system:masters, the Node authorizer, webhooks or ABAC. Package authz
// handles these.
//
// # What blocks
//
// Nothing waits for a server. Decisions hold a read lock while they look at the rules of one
// user, and a change holds the write lock while it replaces one object.
//
// # Bounds and ownership
//
// A [Policy] holds the objects that its owner has set and has not deleted. It keeps the rules
// and the subjects of an object and does not copy them: the caller must not modify them later.
package rbac
