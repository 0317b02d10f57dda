// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package cuts compares for how long informers are without a watch when connections are
// cut and API servers restart: Watershed's own informers, informers of package compat with
// and without the tap, a fleet, and client-go's informer as the reference, all in one run. It has only tests.
//
// The time is measured in the transport of each client, from the end of a response to a
// watch until the next one begins. Nothing changes in the cluster, so that no watch has
// news.
//
// The short run is part of the unit tests. make cuts has the long one, also with a real
// API server.
package cuts
