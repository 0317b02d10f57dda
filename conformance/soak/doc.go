// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package soak runs ordinary clients on the replica that watershed serves, while the
// cluster changes all the time and the replica is killed. It has only tests.
//
// [TestSoak] runs client-go's informers of many kinds (typed, dynamic and of metadata,
// with selectors and without, with streamed and with paged lists) and a
// controller-runtime operator that reads from the replica and writes to the cluster. In
// the end every cache must be equal to etcd, and the operator must have done its work.
// Until then no handler may receive an impossible history, nothing may hang, and requests
// that fail while the replica is down must succeed when it is back.
//
// [TestWriting] runs the same operator entirely through a replica that passes its writes on.
// Its writes may fail only because another client was faster.
//
// By default TestSoak writes for 40 seconds and kills once, and TestWriting writes for 5
// seconds and does not kill; make soak and make writing make that five minutes and two kills.
// Both need a control plane: make kube, and WATERSHED_KUBE=required. With
// WATERSHED_SUBJECT=server the clients of TestSoak run on kube-apiserver, which is then killed
// instead: its behaviour is the reference for the replica.
package soak
