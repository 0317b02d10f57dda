// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kube connects to one Kubernetes cluster, discovers the resources that it
// serves, and provides a [reflector.Source] for each of them.
//
//	prod, err := kube.FromContext("prod-eu")
//	pods, err := prod.Source(kube.Query{Resource: corev1.SchemeGroupVersion.WithResource("pods")})
//	version, err := prod.List(ctx, kube.Query{Resource: …}, func(o *wire.Object) error { … })
//
// client-go reads kubeconfigs, authenticates, verifies certificates and keeps the
// connections. This package makes the requests, so that bodies are streamed and no object
// is decoded on the way.
//
// A Cluster reads. To create, apply, update, patch or delete objects, use client-go, which
// does it well: [Cluster.Config] returns the configuration for a dynamic client or a
// clientset, and [Cluster.Resolve] the resource that a dynamic client needs for a kind.
//
// # Guarantees
//
// A list is complete or fails: a truncated body is never returned as a short list.
// Objects are passed on while the body arrives. A watch ends with [io.EOF] only if the
// server ended it properly.
//
// One read is one request, except that a list is read in pages. This package does not
// retry or throttle: the caller decides when to retry, and errors contain what it needs
// for that. A request that the server rejects fails with an [apierrors.StatusError]
// inside a [reflector.Error], also if the server, or a proxy in front of it, sent another
// body. When a context ends, the call returns the context's error.
//
// Every object has its kind and apiVersion. Kinds that client-go has types for arrive as protobuf,
// all others as JSON; see [Query.JSON] and [Query.MetadataOnly].
//
// # What blocks
//
// Every call that takes a context waits for the server, at most until that context ends.
// The Timeout of the [rest.Config] limits the wait for the response headers and, except
// for lists and watches, for the whole response. Resolve waits for the discovery of a
// concurrent call instead of starting another one.
//
// # Bounds and ownership
//
// A [Cluster] does not start goroutines; net/http has two per connection until
// [Cluster.CloseIdleConnections]. Once [Cluster.Resolve] was called, a Cluster keeps the last
// discovery. Of a list or a watch it keeps only the object that is being read. It reads at most
// 64 KiB of an error response and 16 MiB of a discovery document, two documents at a time, and
// accepts 64 KiB of headers. It follows three redirects, to the same server only.
//
// The caller must read a watch to its end or close it. Any number of goroutines can share
// a [Cluster] and a [Source].
package kube
