// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package status creates the errors that the replica returns as Kubernetes API errors. Where
// kube-apiserver has the same error, the code, reason and text are the same. The package does not
// write responses.
package status
