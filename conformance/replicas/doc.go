// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replicas tests two replicas as processes behind a load balancer. It has only tests.
//
// [TestGroup] has a fleet of real and simulated clusters, and clients of all kinds, while the
// replicas are killed, stopped, replaced and separated from each other and from their clusters.
// [TestJoin] makes replicas without a group members of one. [TestFailover] measures what clients
// notice when a replica ends, and when both are replaced by another build.
//
// The tests need a control plane: make kube, and WATERSHED_KUBE=required.
package replicas
