// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package ecosystem runs programs that people use with Kubernetes against kube-apiserver and
// against a replica of it, with the token of a user, and compares the results. The programs
// are not part of this repository: docs/ecosystem.md describes how to build them.
package ecosystem
