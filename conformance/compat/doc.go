// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package compat holds the informers of Watershed's package of that name to what
// client-go's do. It has only tests.
//
// Most of them have one body and two subjects, cache.NewSharedIndexInformer and
// ours, both fed by client-go's own FakeControllerSource. The behaviours are those
// that client-go tests of its own informer. Where ours means to differ, a
// TestDifference pins both sides; docs/semantics.md lists them.
//
// The tests of real servers run controller-runtime's cache and client-go's factory
// on ours, with the tap and without, and on client-go's, and compare what comes
// out. They need a control plane: make kube, and WATERSHED_KUBE=required.
package compat
