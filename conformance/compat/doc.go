// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package compat compares the informers of Watershed's package compat with those of
// client-go. It has only tests.
//
// Most tests have one body and two subjects, cache.NewSharedIndexInformer and ours, both
// with client-go's own FakeControllerSource. They check what client-go's
// tests check of its own informer. Where our informer differs on purpose, a TestDifference checks
// both; docs/semantics.md lists these differences.
//
// The tests of real servers run controller-runtime's cache and client-go's factory on our
// informers, with the tap and without, and on client-go's, and compare the results. They
// need a control plane: make kube, and WATERSHED_KUBE=required.
package compat
