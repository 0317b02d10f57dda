// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"cmp"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
)

// ErrLimit is the cause of errors about a cluster that exceeds [Limits], and about a resource for
// which the process has no memory.
var ErrLimit = quota.ErrLimit

// Limits bound what one cluster may make the fleet keep, so that a broken or hostile
// cluster cannot use the memory that the others need. 0 means the default, and less than 0
// no limit.
//
// A resource that would exceed a limit ceases to be read, is listed in [Status.Failing]
// with an error that is [ErrLimit], and is tried again after Retry. Its last state stays
// readable. A resource that exceeds a limit in its first list has no state that can be
// read. One resource may use three quarters of Objects and of Bytes, so that the other
// resources of the cluster stay current.
//
// The limits are checked while objects arrive. The objects of a cluster can exceed Bytes
// by a sixty-fourth, and by an eighth while a resource is listed again: objects that the
// list does not have are deleted at its end.
type Limits struct {
	// Objects is the number of objects. Default 5 million.
	Objects int
	// Bytes is the memory that the objects take as they are kept, packed or not, with
	// their keys and labels, and with the objects that wait to be stored. Default: half of
	// the memory limit that the process has when the cluster joins, see
	// [debug.SetMemoryLimit], and 8 GiB if it has none.
	Bytes int64
	// Resources is the number of resources that are mirrored. Resources that are mirrored
	// already and built-in ones come first. Default 2000.
	Resources int
	// WatchBytes is how many bytes of watch events are read in a second. The rest waits at
	// the server. A cluster that has sent less may send as much at once. Default 64 MiB.
	WatchBytes int64
	// Retry is how long a resource that exceeds a limit waits before it is read again.
	// Default 5 minutes.
	Retry time.Duration
}

const (
	defaultObjects    = 5_000_000
	defaultBytes      = 8 << 30
	defaultResources  = 2000
	defaultWatchBytes = 64 << 20
	defaultRetry      = 5 * time.Minute
)

func (l Limits) withDefaults() Limits {
	l.Objects = cmp.Or(l.Objects, defaultObjects)
	l.Resources = cmp.Or(l.Resources, defaultResources)
	l.WatchBytes = cmp.Or(l.WatchBytes, defaultWatchBytes)
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			l.Bytes = memory / 2
		}
	}
	if l.Retry <= 0 {
		l.Retry = defaultRetry
	}
	return l
}

// upstream returns the limits of one API server.
func (l Limits) upstream() upstream.Limits {
	return upstream.Limits{
		Limits: quota.Limits{Objects: int64(l.Objects), Bytes: l.Bytes, Retry: l.Retry}, WatchBytes: l.WatchBytes,
	}
}

type (
	// Memory is how much memory a fleet may use: the pressure, and how many bytes lists may take.
	Memory = quota.Memory
	// Pressure is how scarce the memory of the process is. Each step includes those before it.
	Pressure = quota.Pressure
)

const (
	// PressureNone means that there is memory for everything in [Options].
	PressureNone = quota.PressureNone
	// PressureCaches keeps an eighth of [Options.Decoded].
	PressureCaches = quota.PressureCaches
	// PressureHistory keeps an eighth of [Options.History] and of the states for slow
	// readers. Readers that fall behind more than that receive differences, and watches of
	// feeds begin again.
	PressureHistory = quota.PressureHistory
	// PressureFull drops the resources of [Options.Expendable] and lists no further resource
	// that is not small, see Spare of [Memory]. They fail with an error that is [ErrLimit], and
	// are listed when there is room for them.
	PressureFull = quota.PressureFull
	// PressureCritical keeps no further object of a resource that is not small. A resource
	// that has a new object ceases to be read, as one that exceeds [Limits], and if it is being
	// listed for the first time its objects are dropped. Changes of objects that are kept still
	// arrive.
	PressureCritical = quota.PressureCritical
)

// SetMemory makes the fleet use less memory, or as much as its options allow. The program
// calls it, because the fleet does not know what else needs memory. It is safe for concurrent
// use.
func (f *Fleet) SetMemory(m Memory) {
	p := &f.settings.pressure
	p.Set(m)
	f.values.Resize(int(p.Share(int64(f.settings.Decoded), PressureCaches)))
	if m.Pressure >= PressureFull || p.Refused() {
		f.shed()
	}
}

// shed drops the expendable resources, once. They stay dropped until Reconfigure is called:
// if they came back as soon as there is room, they would be listed and dropped in turns.
func (f *Fleet) shed() {
	patterns := f.settings.tuned.Load().Expendable
	if len(patterns) == 0 || !f.settings.pressure.Shed() {
		return
	}
	f.settings.Logger.Warn("memory is scarce: resources that are expendable are no longer mirrored, until the "+
		"configuration changes", "resources", strings.Join(patterns, ","))
	f.retune()
}
