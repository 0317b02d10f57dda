// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package compat compares the informers of Watershed's package of that name with
// client-go's. It has only tests.
//
// Most tests have one body and two subjects, cache.NewSharedIndexInformer and ours, both
// with client-go's own FakeControllerSource. The behaviours are those that client-go
// tests of its own informer. Where ours differs on purpose, a TestDifference pins both
// sides; docs/semantics.md lists them.
//
// The tests of real servers run controller-runtime's cache and client-go's factory on our
// informers, with the tap and without, and on client-go's, and compare the results. They
// need a control plane: make kube, and WATERSHED_KUBE=required.
package compat
