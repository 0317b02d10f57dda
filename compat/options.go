// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/wire"
)

// Options configures informers. The zero value and nil mean the defaults.
type Options struct {
	// Fast keeps objects as the server sent them, which takes more memory and less CPU
	// time. Default: they are packed.
	Fast bool
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Scheme maps Go types to apiVersion and kind. It is used for types that are not in
	// k8s.io/api if the example does not have them set. Default: client-go's scheme.
	Scheme *runtime.Scheme
	// KeepKind keeps apiVersion and kind in typed objects. Default: they are empty, as
	// with client-go, unless the ListerWatcher returned them. Unstructured objects and
	// metadata always have them.
	KeepKind bool
	// Window limits the bytes of states that one informer keeps for slow handlers. A
	// handler that leaves the window receives differences. Default 8 MiB, an eighth of
	// that of [watershed.Options]: a program has many informers, and their handlers
	// mostly put a key into a queue.
	Window int64
	// Report, if not nil, lists the informers while they run.
	Report *watershed.Report
	// Logger is used by informers and their connections. Default: the logger in the
	// context of the informer's run, as with client-go, and klog's before that.
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
