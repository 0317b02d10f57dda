// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package upstream runs the test suites of controller-runtime and client-go with the informers of Watershed's package
// compat in the place of client-go's. It has only tests.
//
// The suites are copied from the module cache into the cache directory of the test world, never into the repository.
// A small patch lets an environment variable choose the informer:
//
//   - stock: client-go's, to see what the suite itself does on this machine
//   - compat: ours
//   - tap: ours, with compat.Tap in the client, where there is a client
//
// All three must have the same result, test by test. What may differ is listed in differences, with a reason. A listed
// difference that does not occur fails too.
//
// The suites take about half an hour and the network (they have modules of their own), so they run only with
// WATERSHED_UPSTREAM=required: make upstream. The suites of controller-runtime need make kube.
package upstream
