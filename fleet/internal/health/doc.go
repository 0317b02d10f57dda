// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package health says what is wrong with a cluster of a fleet: the status of the cluster and of its
// resources ([Status]), causes of errors ([Trouble]), and what people should know ([Problem]). It
// computes these from the statuses of the resources' informers. Package fleet publishes the types.
//
// It also records what a single status does not show: how often the copy was interrupted
// ([Interruptions]) and which types went away ([Removals]), both for a limited time. Only [NewProbe]
// and [Prober.Probe] send requests.
package health
