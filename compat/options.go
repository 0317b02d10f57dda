// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/wire"
)

// Options tune informers. The zero value, and nil, are the defaults.
type Options struct {
	// Fast keeps objects as the server sent them, for more memory and less
	// processor time. Default: they are kept packed.
	Fast bool
	// Drop is what of each object's metadata is not kept. Default: nothing.
	Drop wire.Fields
	// Scheme says of which apiVersion and kind objects of a Go type are, if
	// neither the example nor k8s.io/api says it. Default: client-go's scheme.
	Scheme *runtime.Scheme
	// KeepKind keeps apiVersion and kind in typed objects. Default: they are empty, as
	// with client-go, unless the ListerWatcher returned them. Unstructured objects and
	// metadata always have them.
	KeepKind bool
	// Window bounds, in bytes, the states kept for slow handlers of one informer. A
	// handler that falls out of it is given differences. Default 8 MiB, an eighth of
	// that of [watershed.Options]: a program has many informers, and their handlers
	// mostly put a key into a queue.
	Window int64
	// Report, if there is one, knows the informers while they run.
	Report *watershed.Report
	// Logger is for informers and their connections. Default: the logger in the
	// context that an informer is run with, as with client-go, and klog's before that.
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Window <= 0 {
		opts.Window = 8 << 20
	}
	return opts
}

func (o *Options) memory() watershed.Memory {
	if o.Fast {
		return watershed.Fast
	}
	return watershed.Packed
}
