// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package compat is Watershed's engine behind client-go's informer: what it makes
// is a [cache.SharedIndexInformer], for programs that were written for one.
//
//	// controller-runtime
//	cfg.Wrap(compat.Tap)
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: cache.Options{NewInformer: compat.NewInformer(nil)}})
//
//	// client-go
//	pods := factory.InformerFor(&corev1.Pod{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
//		return compat.NewInformer(nil)(listWatch(c), &corev1.Pod{}, resync, indexers)
//	})
//
// Objects are kept as bytes, packed, and decoded when somebody looks at them.
// [Tap] in the transport of the client lets informers have those bytes as the
// server sent them. Without it the client decodes objects first and they are
// encoded again, which costs processor time at every change, and no memory.
//
// # Guarantees
//
// Whatever works with a SharedIndexInformer works with this one: generated and
// dynamic listers, factories, controller-runtime's cache. Where it behaves
// differently on purpose, docs/semantics.md says so. What matters most: a relist
// calls handlers only for what has changed; each read may return a new value, so
// that comparing pointers says nothing.
//
// As with client-go, typed objects have an empty apiVersion and kind (see
// [Options.KeepKind]), the objects of a resource that is not served stay until the
// next complete list, and a handler that panics ends the program unless
// [k8s.io/apimachinery/pkg/util/runtime.ReallyCrash] is false.
//
// An object must have a name, and be of the Go type of the example that the
// informer was made with; what is not is left out, logged and counted. That holds
// for what a transform returns, too.
//
// As with client-go, an informer that was stopped can still be read, and cannot be
// started again.
//
// # What blocks
//
// Run and RunWithContext return when everything they started has returned,
// handlers included. All other methods return at once, but for AddIndexers, which
// decodes every object there is. Reading decodes what it returns.
//
// # Bounds and ownership
//
// A handler that is slow falls behind and is given differences when it has left
// the window ([Options.Window]); client-go would keep every change for it. What
// reads and handlers return is shared and must not be changed. An object given to
// the Add, Update or Replace of the store is copied: changing it afterwards
// changes nothing in the store.
//
// A response that [Tap] takes from a client is closed by the informer, at the
// latest when its run ends.
package compat
