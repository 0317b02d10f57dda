// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package soak lets ordinary clients live on the replica that watershed serves, while
// the cluster below changes without a pause and the replica is killed. It has only
// tests.
//
// [TestSoak] runs client-go's informers of many kinds (typed, dynamic and of metadata,
// with selectors and without, with streamed and with paged lists) and a
// controller-runtime operator that reads from the replica and writes to the cluster.
// In the end every cache must be equal to etcd, the operator must have done its work,
// and on the way no handler may be told of a history that cannot be, nothing may hang,
// and what fails while the replica is away must not fail any more when it is back.
//
// By itself the test writes for 40 seconds and kills once; make soak makes that five
// minutes and two kills. It needs a control plane: make kube, and WATERSHED_KUBE=required.
// With WATERSHED_SUBJECT=server the clients live on kube-apiserver, and it is what is
// killed: what they see then is what the replica is held to.
package soak
