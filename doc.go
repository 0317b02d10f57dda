// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package watershed is the read side of Kubernetes as a library. It keeps an exact,
// indexed, always current copy of a resource, from one list and watch, and serves any
// number of readers from it.
//
//	prod, err := kube.FromContext("prod")
//	pods, err := watershed.New[*corev1.Pod](prod, nil)
//	byNode := watershed.IndexBy(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
//	pods.Handle(watershed.Handler[*corev1.Pod]{
//		Add: func(p *corev1.Pod, initial bool) { … },
//	})
//	go pods.Run(ctx)
//	err = pods.WaitForSync(ctx)
//	for p := range byNode.Get("node-7") { … }
//	for key, p := range pods.Select("shop", labels.SelectorFromSet(labels.Set{"app": "cart"})) { … }
//
// # Guarantees
//
// An informer keeps each object as the bytes that the server sent, and decodes it when
// it is read. Concurrent readers share the decoded value. Every object carries its
// apiVersion and kind.
//
// Reads are served from a [Snapshot]. It is consistent in itself and with the indexes,
// takes no lock and never changes. Before [Informer.Synced] it may lack objects.
//
// A [Handler] is called by one goroutine, for each object in the order in which the
// server changed it. Whenever it joins, it receives the first state of every existing
// object as Add with initial true, and every change after that state. A slow handler
// does not delay other readers or the informer. If it is slower than the window of
// changes that is kept for all readers, it receives the differences between the last
// state that it saw and the current one. It may then miss states in between, but never
// an object. The versions that it sees never go back, unless the server's do. A handler
// that panics is called again with the next change; the panic is counted, and logged
// unless the handler has a Panicked function.
//
// An object whose state cannot be decoded into T is left out of reads, and the state is
// logged and counted once. Handlers skip it: see [Handler]. [Change] and
// [Index.Failing] return the error.
//
// [Informer.Run] blocks, and returns after everything that it started has ended. The
// copy is then dropped, and Run can be called again.
//
// # What blocks
//
// Reads never block. Run does not return before the running functions of its handlers
// have returned.
//
// # Bounds and ownership
//
// Returned objects are shared and must not be modified ([Options.Mutated] reports
// objects that were). To modify an object, call its DeepCopy first.
//
// An object costs its bytes, 96 bytes of wire.Object, its key, and some 105 bytes in the store. An
// index costs 120 bytes per object. The window costs at most [Options.Window] bytes of states that
// are no longer current. A handler costs a goroutine. A handler that has fallen out of the window
// holds the last states that it saw of the objects that have changed since: at most one older copy.
package watershed
