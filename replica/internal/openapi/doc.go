// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package openapi serves the version and the OpenAPI documents of a cluster, from copies
// of the responses of its API server.
//
//	d := openapi.New(func() *kube.Cluster { return cluster }, nil)
//	served := d.Serve(w, r, "/openapi/v3/apis/apps/v1")
//
// # Guarantees
//
//   - A document is requested from the API server when the first client requests it,
//     once for all clients that wait for it. After that it is requested at most once per
//     interval, and only if a client requests it. A document that a client requests by
//     its current hash is not checked again.
//   - While the API server cannot be reached, clients receive the copy, if there is one.
//     If the server refuses a document, clients are refused too, and the copy is dropped.
//   - Clients cannot cause more load or copies than that: paths that are not in the index
//     are answered here, and each document has two encodings.
//   - Documents are identical to the server's, byte for byte. This includes the addresses
//     in the index of version 3: they are relative to the root of the API, wherever the
//     client finds that.
//
// # What blocks
//
// [Documents.Serve] waits up to ten seconds for the API server, or two if it has a copy
// to fall back on. Nothing runs in the background: the request that finds a copy too old
// requests a new one.
//
// # Bounds and ownership
//
// Copies are kept compressed, as the server sent them if it compresses them, up to
// [Options.Bytes]. The least recently requested copies are dropped first. A document of
// more than 64 MiB without compression, or an index of more than 2 MiB, is an error, and
// so is a response whose media type is not that of a document.
package openapi
