// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"math"
	"runtime/debug"
	"time"

	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
)

var (
	// ErrLimit is the cause of errors about a cluster that exceeds [Limits].
	ErrLimit = quota.ErrLimit
	// ErrMemory is the cause of errors about a resource for which the process has no memory. Such
	// an error is an [ErrLimit] too.
	ErrMemory = quota.ErrMemory
)

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
	if l.Objects == 0 {
		l.Objects = defaultObjects
	}
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			l.Bytes = memory / 2
		}
	}
	if l.Resources == 0 {
		l.Resources = defaultResources
	}
	if l.WatchBytes == 0 {
		l.WatchBytes = defaultWatchBytes
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
