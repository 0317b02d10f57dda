// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replica compares the replica that watershed serves with kube-apiserver. It has
// only tests: one body, two subjects.
//
// [TestFidelity] sends every request of a corpus to both and compares status, headers and
// the meaning of bodies. One part of the corpus was recorded from kubectl, client-go and
// controller-runtime (testdata/corpus.tsv, made by TestRecord), the other is written by
// hand, for the edge cases. Where the replica differs on purpose, differences_test.go has
// the difference and its reason. A difference that is not listed there fails the test,
// and so does a listed one that does not occur. docs/compat.md is the result.
//
// [TestKubectl] runs kubectl against both and compares its output. [TestFleetView] reads
// two clusters at once. [TestWrites] runs kubectl, helm and curl that write, at the API server
// and at a replica that passes requests on.
//
// [TestReadYourWrites], [TestEffects] and [TestElection] read and write entirely through a
// replica that passes requests on.
//
// The tests need a control plane: make kube, and WATERSHED_KUBE=required. With
// WATERSHED_SUBJECT=server the second subject is kube-apiserver too, which must be equal
// to itself in everything: that checks the comparison. With WATERSHED_REPORT set to a
// folder, TestFidelity writes its page there.
package replica
