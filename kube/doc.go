// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package kube is one Kubernetes cluster: how to reach it, what it serves, and a
// [reflector.Source] for anything it serves.
//
//	prod, err := kube.FromContext("prod-eu")
//	pods, err := prod.Source(kube.Query{Resource: corev1.SchemeGroupVersion.WithResource("pods")})
//	version, err := prod.List(ctx, kube.Query{Resource: …}, func(o *wire.Object) error { … })
//
// client-go reads kubeconfigs, logs in, verifies certificates and keeps the
// connections; the requests are made here, so that bodies stream and no object
// is decoded on its way.
//
// # Guarantees
//
// A list is complete or an error: a body that breaks off is never a short list.
// Objects are handed on while the body arrives. A watch ends with [io.EOF] only
// if the server ended it in good order.
//
// One call is one request. Nothing is retried and nothing is throttled here: who
// calls decides when to come back, and errors say what it needs to know for
// that. What the server refuses is an [apierrors.StatusError] inside a
// [reflector.Error], whatever the server, or a proxy before it, wrote. The end of
// a context comes back as the context's error.
//
// Objects have their kind. Kinds that client-go knows come as protobuf, all
// others as JSON; see [Query.JSON] and [Query.MetadataOnly].
//
// # What blocks
//
// Whatever takes a context waits for the server until that context ends. The
// Timeout of the [rest.Config] bounds the wait for the beginning of an answer and,
// but for lists and watches, for all of it. Resolve waits for another call's
// discovery instead of beginning one of its own.
//
// # Bounds and ownership
//
// A [Cluster] starts no goroutine; net/http has two per connection until
// [Cluster.CloseIdleConnections]. It keeps the last discovery, once
// [Cluster.Resolve] was called, and of a list or a watch no more than the object
// that is being read. Of an answer that is an error at most 64 KiB are read, of a
// discovery document 64 MiB. A watch that was begun must be read to its end or
// closed. A [Cluster] and a [Source] may be shared by any number of goroutines.
package kube
