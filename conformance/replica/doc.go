// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replica holds the replica that watershed serves to what kube-apiserver
// does. It has only tests: one body, two subjects.
//
// [TestFidelity] sends every request of a corpus to both and compares status,
// headers and bodies in meaning. One part of the corpus was recorded from kubectl,
// client-go and controller-runtime (testdata/corpus.tsv, made by TestRecord), the
// other is written by hand, for the edges. Where the replica means to differ, a
// difference in differences_test.go says so and why; one that is not there fails the
// test, and so does one that does not occur. docs/compat.md is the result.
//
// [TestKubectl] runs kubectl against both and compares what it prints. [TestFleetView]
// looks at two clusters at once.
//
// The tests need a control plane: make kube, and WATERSHED_KUBE=required. With
// WATERSHED_SUBJECT=server the second subject is kube-apiserver too, which must be
// equal to itself in everything: that checks the comparison. With WATERSHED_REPORT
// set to a folder, TestFidelity writes its page there.
package replica
