// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package cuts compares for how long informers are without a watch when connections are
// cut and API servers restart: Watershed's own, those of package compat with the tap and
// without, a fleet's, and client-go's as the reference, all in one run. It has only tests.
//
// The time is measured in the transport of each client, from the end of a response to a
// watch until the next one begins. Nothing changes in the cluster, so that no watch has
// news.
//
// The short run is part of the unit tests. make cuts has the long one, also with a real
// API server.
package cuts
