// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package stream reads responses of an API server as they arrive: the frames of a watch
// and the fields of a protobuf list. It allocates for an announced length only as the bytes
// arrive, and an idle watch keeps no buffers.
package stream
