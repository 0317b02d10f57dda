// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package compat provides Watershed's engine as a [cache.SharedIndexInformer], for
// programs that were written for client-go's informer.
//
//	// controller-runtime
//	cfg.Wrap(compat.Tap)
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: cache.Options{NewInformer: compat.NewInformer(nil)}})
//
//	// client-go
//	newPods := func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
//		return compat.NewInformer(nil)(listWatch(c), &corev1.Pod{}, resync, indexers)
//	}
//	pods := factory.InformerFor(&corev1.Pod{}, newPods)
//
// Objects are kept as packed bytes and decoded when they are read. Values that are read again
// soon stay decoded, see [Options.Values]. [Tap] in the client's
// transport passes the bytes of watches to informers as the server sent them. Without it,
// and in lists, the client decodes objects first and they are encoded again, which costs
// CPU time at every change, but no memory.
//
// An informer has the objects that its ListerWatcher returns, as with client-go, also if
// that merges, filters or edits what its client returns, and whether or not the client has
// a tap. A watch that the ListerWatcher has not left as it was, which includes the watches
// of metadata in controller-runtime, is decoded by the client.
//
// # Guarantees
//
// Everything that works with a SharedIndexInformer works with this one: generated and
// dynamic listers, factories, controller-runtime's cache. docs/semantics.md lists the
// deliberate differences. The most important ones: a relist calls handlers only for
// objects that have changed, and each read may return a new value, so comparing pointers
// is meaningless.
//
// As with client-go, typed objects have an empty apiVersion and kind (see
// [Options.KeepKind]), the objects of a resource that is not served stay until the next
// complete list, and a handler that panics ends the program unless
// [k8s.io/apimachinery/pkg/util/runtime.ReallyCrash] is false.
//
// An object must have a name, and the Go type of the example that the informer was made
// with. Other objects are left out, logged and counted. That applies to the results of a
// transform, too.
//
// As with client-go, an informer that was stopped cannot be started again, and can still
// be read: by its handlers, and by workers that empty their queue during a shutdown.
// Unlike client-go's it does not keep its objects for ever. They are freed when the run
// has been over for [Options.Linger]. From then on reads by key and by index return an
// error, and lists are empty. HasSynced, IsStopped and LastSyncResourceVersion do not
// change. GetStore().Replace(nil, "") after the stop frees the objects at once.
//
// With [Options.Disk] a restarted program continues from files. Its informers have synced,
// and call handlers, only when they have caught up with the server. Until the server can be
// reached they wait, and do not use the files.
//
// # What blocks
//
// Run and RunWithContext return when everything they started has returned, handlers
// included. They do not wait for a call of the ListerWatcher, which may have no context and
// hang, as with client-go: the goroutine of that call belongs to the ListerWatcher, and its
// result is discarded. All other methods return at once, except AddIndexers, which decodes all
// objects. Reads decode the objects that they return.
//
// # Bounds and ownership
//
// A slow handler falls behind. When it has left the window ([Options.Window]), it
// receives differences; client-go would keep every change for it. Objects from reads and
// in handlers are shared and must not be modified. The Add, Update and Replace of the
// store copy their objects: changing an object afterwards does not change the store.
//
// The informer closes a response that [Tap] takes from a client, at the latest when its
// run ends.
package compat
