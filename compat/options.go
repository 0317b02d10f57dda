// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/disk"
	"github.com/watershed-project/watershed/wire"
)

// Options configures informers. The zero value and nil mean the defaults.
type Options struct {
	// Fast keeps objects as the server sent them, which takes more memory and less CPU
	// time. Default: they are packed.
	Fast bool
	// Values configures which decoded values each informer keeps for the next reads.
	Values watershed.ValueOptions
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Scheme maps Go types to apiVersion and kind. Custom types work without it, because
	// objects are decoded into the type of the example. It is used for types that are not in
	// k8s.io/api if the example does not have apiVersion and kind set: Disk needs the kind,
	// KeepKind sets it in objects that came without, client-go's metrics (Name) have its
	// resource, and logs and the Report have the kind instead of the Go type. Default:
	// client-go's scheme.
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
	// Disk, if it is not nil, has the files in which informers keep their objects, so that
	// the next process does not list them again but continues from the stored version.
	// HasSynced is false, and handlers are not called, until the informer has caught up
	// with the server. Reads before that return the stored objects. It needs a [Tap] in the
	// clients: other informers log a warning, and store nothing. So do two informers of the
	// same objects and Go type, except for the first. Secrets are kept only if the directory
	// has keys. Files are identified by the first list request of the ListerWatcher: it is
	// not for one that merges several requests, and one that filters or edits objects counts
	// as a transform that TransformName names. Default: nothing is stored.
	Disk *disk.Directory
	// TransformName names the transforms, with their version. An informer with a transform
	// that is stored needs it: objects that were stored by another version are not used.
	TransformName string
	// Linger is how long the objects of an informer that was stopped can still be read.
	// It begins when the run has returned, after all handlers. Workers that empty their
	// queue during a shutdown need the objects: if they were missing, the workers would
	// take them for deleted. Default 30 s, the time that Kubernetes gives a container to
	// end. If it is negative, the objects are freed when the run returns.
	//
	// Afterwards reads by key and by index return an error, and lists are empty.
	// GetStore().Replace(nil, "") frees the objects of a stopped informer at once, as with
	// client-go, and reads of it then find nothing, without an error.
	Linger time.Duration
	// Name identifies informers in client-go's own metrics, such as informer_queued_items.
	// Only the first informer of a resource with a name has metrics, as with client-go.
	// Default: no metrics.
	Name *cache.InformerName
	// Metrics makes the metrics of informers with a Name. client-go does not return the
	// provider that was set with cache.SetInformerMetricsProvider, so it is set here too.
	// Package metrics/clientgo of Watershed has one. Default: no metrics.
	Metrics cache.InformerMetricsProvider
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
	if opts.Linger == 0 {
		opts.Linger = 30 * time.Second
	}
	return opts
}

func (o *Options) memory() watershed.Memory {
	if o.Fast {
		return watershed.Fast
	}
	return watershed.Packed
}
