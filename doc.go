// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package watershed is the read side of Kubernetes as a library: an exact, indexed,
// always current copy of a resource, from one list and watch, for any number of
// readers.
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
//
// # Guarantees
//
// An object is kept as the bytes that the server sent and decoded when somebody
// looks at it; whoever looks at the same time shares the decoded value. Every
// object carries its apiVersion and kind.
//
// Reads are of a [Snapshot], which is consistent in itself and with the indexes,
// takes no lock and never changes. Before [Informer.Synced] it may lack objects.
//
// A [Handler] is called by one goroutine, for each object in the order in which the
// server changed it. It sees the first state of every object there is as Add with
// initial true, whenever it joins, and every change after that state. A handler that is slow delays nobody. If it is
// slower than the window of changes that is kept for all readers, it is given the
// differences between what it saw last and what is there now: it may miss states
// in between, never an object, and the versions it sees never go back, unless
// the server's do. A handler that panics is called again with the next change; the
// panic is counted, and logged unless the handler has a Panicked function.
//
// An object whose state cannot be decoded into T is left out of reads, and the state is
// logged and counted once. Handlers skip it: see [Handler]. [Change] and [Index.Failing]
// return the error.
//
// [Informer.Run] blocks and returns after everything that it started. Then nothing
// of the copy is kept, and Run can be called again.
//
// # What blocks
//
// Reading blocks on nothing. Run does not return while a handler's function does
// not.
//
// # Bounds and ownership
//
// Objects that are handed out are shared: they must not be changed
// ([Options.Mutated] finds who does). Whoever needs to change one calls its DeepCopy.
//
// An object costs its bytes and some 300 more; an index 120 per object; the window
// at most [Options.Window] bytes of states that are no longer current; a handler a
// goroutine. A handler that has fallen out of the window holds the states it saw
// last of the objects that have changed since: at most one older copy.
package watershed
