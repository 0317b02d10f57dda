// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package overload

import (
	"runtime"
	"time"

	"github.com/watershed-project/watershed/cmd/watershed/internal/defaults"
)

// Options configure a [Limiter]. The zero value, and nil, are the defaults.
type Options struct {
	// Units limits the work in flight, in units. Default 128 per processor.
	Units int
	// MaxCost limits the units of one request, which is otherwise charged by its number of
	// objects. Default an eighth of Units.
	MaxCost int
	// Waiting limits how many requests wait, in total. Default 2,000: a waiting request takes about
	// as much memory as an idle watch.
	Waiting int
	// WaitingPerUser limits how many requests of one user wait. Default half of Waiting: when another
	// replica ends, all its watches come here at once, and agents often share a service account. A
	// watch that waits here is silent for less time than one that is told to come back in a second.
	WaitingPerUser int
	// MaxWait limits how long a request waits. Default 15 s, as long as in kube-apiserver.
	MaxWait time.Duration
	// UnitTime is how long a list may hold its units, for each unit of its cost before
	// MaxCost is applied, and one second at least. After that the client is slow, not the
	// server: a list is written while it is read. Then the list counts as slow, and its units
	// are free. Default 4 ms, about twice the processor time of 100 pods in JSON.
	UnitTime time.Duration
	// Slow limits the number of slow lists. Any more keep their units. A user may have as
	// many as are free for others. Default 1,000. A slow list of the replica takes about
	// 300 KB.
	Slow int
	// Watches limits the number of open watches. Default 20,000. An idle watch of the
	// replica takes 17 KB of memory, or 61 KB if it has a connection of its own. A watch with
	// long selectors counts as several, see [Places].
	Watches int
	// WatchesPerUser limits the number of watches of one user. Default half of Watches:
	// agents that run on every node often share a service account.
	WatchesPerUser int
	// WatchStart limits how long a watch holds units for its start. Default 1 s.
	WatchStart time.Duration
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	defaults.Set(&opts.Units, 128*runtime.GOMAXPROCS(0))
	defaults.Set(&opts.MaxCost, max(1, opts.Units/8))
	defaults.Set(&opts.Waiting, 2000)
	defaults.Set(&opts.WaitingPerUser, max(1, opts.Waiting/2))
	defaults.Set(&opts.MaxWait, 15*time.Second)
	defaults.Set(&opts.UnitTime, 4*time.Millisecond)
	defaults.Set(&opts.Slow, 1000)
	defaults.Set(&opts.Watches, 20_000)
	defaults.Set(&opts.WatchesPerUser, max(1, opts.Watches/2))
	defaults.Set(&opts.WatchStart, time.Second)
	return opts
}
