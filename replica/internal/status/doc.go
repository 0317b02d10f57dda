// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package status makes the errors of the Kubernetes API that the replica returns, with the
// codes, reasons and texts of kube-apiserver where it has the same error. It writes
// nothing.
package status
