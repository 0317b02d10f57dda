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
	// Window bounds, in bytes, the states kept for slow handlers. Default: that
	// of [watershed.Options].
	Window int64
	// Report, if there is one, knows the informers while they run.
	Report *watershed.Report
	// Logger is for informers and their connections. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

func (o *Options) memory() watershed.Memory {
	if o.Fast {
		return watershed.Fast
	}
	return watershed.Packed
}
