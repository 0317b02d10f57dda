// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"log/slog"
	"runtime"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// Options tune a [Fleet]. The zero value, and nil, are the defaults.
type Options struct {
	// Resources are patterns of the resources to mirror: "pods", "deployments.apps",
	// "*.apps", "deployments.*" or "*". Only resources that can be listed and watched are
	// mirrored, each in one version. Secrets, events and leases are left out unless a
	// pattern without a star names them. Nil means "*"; an empty list is an error.
	Resources []string
	// Except are patterns of resources not to mirror. They take precedence over
	// Resources.
	Except []string
	// Scope limits which objects are mirrored from clusters whose [Entry] has no scope.
	// Default: the whole cluster.
	Scope Scope
	// Fast keeps objects as they were received. Default: objects are packed, which takes
	// a tenth of the memory.
	Fast bool
	// Settling is the share of one processor that may be used to pack objects densely
	// that have not changed for a while, see [watershed.PackingOptions]. Less is used
	// while states arrive. Default 0.25.
	Settling float64
	// Drop lists metadata fields to discard from each object. Default: none.
	Drop wire.Fields
	// Transform is called once for every state of every object before it is stored.
	Transform func(*wire.Object) (*wire.Object, error)
	// Budget limits the load that reading a cluster's state puts on its API server.
	Budget Budget
	// Lists limits how many resources are listed at once in the whole fleet. Default: 6
	// for each processor.
	Lists int
	// Window limits, in bytes, the states of one resource that are kept for slow readers.
	// Default 64 MiB.
	Window int64
	// History limits, in bytes and for the whole fleet, the changes that are kept for
	// readers of single clusters that use the servers' versions, see [Feed]. Above the
	// limit, the oldest changes of all feeds are dropped. Default: no history, and no
	// feeds.
	History int64
	// Decoded limits, approximately, the bytes of recently decoded values that are kept.
	// Default 64 MiB.
	Decoded int
	// Reflector tunes the lists and watches.
	Reflector reflector.Options
	// Report, if it is not nil, includes the fleet's informers while they run.
	Report *watershed.Report
	// Logger receives a line when a cluster goes live, when it or one of its resources
	// begins to fail and when that ends, and the progress of the first sync. Each retry
	// has level Debug. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Budget.Lists <= 0 {
		opts.Budget.Lists = 4
	}
	if opts.Lists <= 0 {
		opts.Lists = fleetLists * runtime.GOMAXPROCS(0)
	}
	if opts.Window <= 0 {
		opts.Window = 64 << 20
	}
	if opts.Decoded <= 0 {
		opts.Decoded = 64 << 20
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// settings are the options of a fleet and the parts that are made from them. All members
// share them.
type settings struct {
	Options
	selection selection
	// gate limits the lists of all members.
	gate *gate
	// packing is nil if objects are not packed.
	packing *watershed.Packing
}

// newSettings fills in the defaults and checks the options.
func newSettings(opts *Options) (*settings, error) {
	s := &settings{Options: opts.withDefaults()}
	var err error
	if s.selection, err = newSelection(s.Resources, s.Except); err != nil {
		return nil, err
	}
	if err := s.Scope.validate(); err != nil {
		return nil, err
	}
	s.gate = newGate(s.Lists, fleetPatience)
	if !s.Fast {
		s.packing = watershed.NewPacking(&watershed.PackingOptions{Settling: s.Settling, Busy: s.gate.busy})
	}
	return s, nil
}

// memory returns how objects are kept.
func (s *settings) memory() watershed.Memory {
	if s.Fast {
		return watershed.Fast
	}
	return watershed.Packed
}

// scopeOf returns the scope of an entry.
func (s *settings) scopeOf(e Entry) Scope {
	if e.Scope != nil {
		return *e.Scope
	}
	return s.Scope
}
