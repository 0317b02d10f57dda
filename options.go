// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed

import (
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/reflector"
)

// Options tune an [Informer]. The zero value, and nil, are the defaults.
type Options[T any] struct {
	// Resource is what to read. Default: the resource of T, if that is a type
	// of k8s.io/api.
	Resource schema.GroupVersionResource
	// Namespace is where to read it. Default: everywhere.
	Namespace string
	// LabelSelector and FieldSelector say which objects, in the syntax of
	// kubectl. Default: all.
	LabelSelector, FieldSelector string
	// Tweak has the last word on the parameters of every list and watch.
	Tweak func(*metav1.ListOptions)
	// Transform is called once for every state before it is kept, and may return
	// another object or the same one, changed: what it gets is its own. A T that
	// is not *wire.Object is decoded for it and encoded again. If it fails, the
	// object's last state stays, and the loss is counted in the status.
	Transform func(T) (T, error)
	// Resync is how often handlers that say nothing else are given every object
	// again, as an Update from itself to itself. Default: never.
	Resync time.Duration
	// Window bounds, in bytes, the states kept for slow readers. Default 64 MiB. A
	// reader that falls out of it holds the last states it saw of what has changed
	// since: there is a quarter of the window for that, and more is more.
	Window int64
	// Reflector tunes how the server is asked.
	Reflector reflector.Options
	// Mutated, for tests, is told of objects that somebody changed after they
	// were handed out: what it was, what it is now. Everything handed out is
	// kept and compared, every second and at the end of Run.
	Mutated func(key string, was, is T)
	// Logger is for the informer and its reflector. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options[T]) withDefaults() Options[T] {
	var opts Options[T]
	if o != nil {
		opts = *o
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Reflector.Logger == nil {
		opts.Reflector.Logger = opts.Logger
	}
	return opts
}

// life is what of the options a life needs.
func (o *Options[T]) life(c codec[T]) lifeOptions {
	return lifeOptions{transform: c.transform(o.Transform), window: o.Window, reflector: o.Reflector}
}
