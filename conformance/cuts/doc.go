// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package cuts measures how long informers have no watch after connections are cut and API
// servers restart. One run compares Watershed's own informers, informers of package compat with
// and without the tap, a fleet, and client-go's informer as the reference. It has only tests.
//
// The time is measured in the transport of each client, from the end of a response to a
// watch until the next watch begins. No object changes meanwhile, so the watches have no events.
//
// The short run is part of the unit tests. make cuts has the long one, also with a real
// API server.
package cuts
