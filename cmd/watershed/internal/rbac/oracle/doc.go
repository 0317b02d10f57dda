// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package oracle compares the decisions of package rbac with those of kube-apiserver's own RBAC
// authorizer, for random requests and for random policies that change. It has only tests:
//
//	GOWORK=off go test . -cases 1000000
//
// Every decision must be equal. kube-apiserver visits bindings in random order, so the reason
// of an allowed request must be one of those that it can give, and the roles that a denial names
// are compared as a set.
package oracle
