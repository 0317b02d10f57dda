// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package replicas tests two replicas as processes behind a load balancer. It has only tests.
//
// [TestGroup] runs clients of all kinds on a fleet of real and simulated clusters, while the replicas
// are killed, stopped, replaced and separated from each other and from their clusters. [TestJoin]
// restarts two replicas, one after the other, that had no group and then join one. [TestFailover]
// measures what clients notice when a replica ends, and when both are replaced by another build.
//
// The tests need a real control plane, which make kube builds. Without it they are skipped, or fail if
// WATERSHED_KUBE=required.
package replicas
