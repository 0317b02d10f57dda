// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package openapi passes a cluster's own description on to clients: its version and
// its OpenAPI documents, from copies of what the API server says.
//
//	d := openapi.New(func() *kube.Cluster { return cluster }, nil)
//	served := d.Serve(w, r, "/openapi/v3/apis/apps/v1")
//
// # Promises
//
//   - A document is asked for when the first client asks for it, once for all that
//     wait for it, and after that at most once an interval, if anybody asks for it. A
//     document that is asked for by the hash it has is not looked at again.
//   - While the API server cannot be reached, clients get the copy there is. What the
//     server refuses is refused, and forgotten.
//   - Clients cannot make more of it: paths that the index has not got are answered
//     here, and of each document there are two encodings.
//   - Documents are the server's own, to the byte. The addresses in the index of
//     version 3 are too: they are relative to the root of the API, wherever that is
//     for the client.
//
// # What blocks
//
// [Documents.Serve] waits for the API server up to ten seconds, or two if there is a
// copy that it can fall back on. Nothing runs in the background: the request that
// finds a copy too old is the one that asks.
//
// # Bounds
//
// Copies are kept compressed, as the server sent them if it compresses them, up to
// [Options.Bytes]; those that were not asked for longest go first. A document of more
// than 64 MiB without compression, or an index of more than 2 MiB, is an error, and so is an
// answer whose media type is not that of a document.
package openapi
