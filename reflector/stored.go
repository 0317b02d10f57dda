// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A stored state can be continued with a watch only if the source has the same history up to the
// version of the state. After etcd was restored from an older backup, the histories differ. A source
// that is behind the stored version shows the restore by its own version. A source that has advanced
// beyond the stored version accepts the watch, and sends nothing of what has happened between the backup and the
// stored version. So the newest stored objects are compared with the source first.
//
// Example: the state is stored at version 100, its newest objects are a, written at 99, and b,
// written at 60. The backup was made at version 92, and the source is at 110 again. The source
// returns for a:
//
//   - version 99 with the same UID: the history is the same up to 99. Nothing else is requested.
//   - version 50: a was written at 99 in another history.
//   - a version above 99 and up to 100: a was written in another history, because the history of
//     the stored state has no write of a between 99 and 100.
//   - version 105: a was written again, in one history or the other. The next object may show more.
//   - nothing: a was deleted since version 100, and the watch from there sends the deletion. If the
//     copy catches up with the source and there was no deletion, a never existed in this history.
//     The next object may show more, before that.

// ComparedObjects limits how many stored objects are compared with the source, see
// [Reflector.Continue]. Each costs a request, and the first is usually enough.
const ComparedObjects = 3

// compareTries is how often the source is asked for a stored object before the state is
// continued without the comparison, if the source answers other requests.
const compareTries = 3

// errRestored is the error for a source that has another history than the stored state.
var errRestored = errors.New("the server has another history than the stored state: etcd was restored from a backup")

// StoredObject identifies one state of a stored object.
type StoredObject struct {
	Key string
	// UID is "" if it is not known. Then only versions are compared.
	UID     string
	Version uint64
}

// Getter is implemented by a [Source] that can read a single object. Without it, a stored state
// is continued without comparing its objects with the source.
type Getter interface {
	// Get returns the UID and the version of the object with a key. Both are "" if the object
	// does not exist. The result must have every write before the call: a list or a watch that
	// begins later must not be older. The error has reason [NotSupported] if the server does not
	// allow to read single objects.
	Get(ctx context.Context, key string) (uid, version string, err error)
}

// comparison compares stored objects with the source.
type comparison struct {
	// left are the objects to compare, the newest first. failed counts the tries that failed.
	left   []StoredObject
	failed int
	// absent are the keys of objects that the source does not have. Their deletions must arrive
	// before the copy is current.
	absent map[string]struct{}
}

// newComparison returns a comparison of the newest of some objects of a state. Versions that are
// unknown, or above the version of the state, are not comparable.
func newComparison(objects []StoredObject, version uint64) comparison {
	objects = slices.DeleteFunc(slices.Clone(objects), func(o StoredObject) bool {
		return o.Version == 0 || o.Version > version
	})
	slices.SortFunc(objects, func(a, b StoredObject) int { return cmp.Compare(b.Version, a.Version) })
	return comparison{left: objects[:min(len(objects), ComparedObjects)]}
}

// compareStored compares stored objects with the source, until one shows that the history is
// the same. It returns errRestored if one shows that it is not, and another error if the source
// did not answer. Then the next call continues.
func (in *intake[T]) compareStored(ctx context.Context) error {
	getter, ok := in.source.(Getter)
	for c := &in.stored; ok && len(c.left) > 0; c.left = c.left[1:] {
		o := c.left[0]
		uid, version, err := in.get(ctx, getter, o.Key)
		is := number(version)
		switch {
		case ReasonOf(err) == NotSupported:
			in.logger.Info("stored objects are not compared with the server", "err", err)
			c.left = nil
			return nil
		case err != nil:
			return fmt.Errorf("compare stored %s: %w", o.Key, err)
		case version == "":
			if c.absent == nil {
				c.absent = map[string]struct{}{}
			}
			c.absent[o.Key] = struct{}{}
		case is == 0: // the versions of the source are not comparable
		case is == o.Version && (uid == o.UID || uid == "" || o.UID == ""):
			c.left = nil
			return nil
		case is <= number(in.version):
			return in.restored(o.Key, version, fmt.Sprint(o.Version))
		}
	}
	return nil
}

// get requests one object, and fails if the source is silent for too long.
func (in *intake[T]) get(ctx context.Context, from Getter, key string) (uid, version string, err error) {
	quiet := listen(ctx, min(aimTimeout, in.opts.Silence), time.Time{})
	defer quiet.stop()
	uid, version, err = from.Get(quiet.ctx, key)
	return uid, version, quiet.cause(err)
}

// uncompared decides what follows after compareStored has failed and the source has answered
// another request. It returns the error if the comparison is to be tried again, and nil if the
// stored state is to be continued without it.
func (in *intake[T]) uncompared(err error) error {
	if err == nil || ReasonOf(err) == Busy || ReasonOf(err) == Refused {
		return err
	}
	if in.stored.failed++; in.stored.failed < compareTries {
		return err
	}
	in.logger.Warn("continuing the stored state although its objects cannot be compared with the server", "err", err,
		"rv", in.version)
	in.stored.left = nil
	return nil
}

// deleted records the deletion of an object.
func (in *intake[T]) deleted(key string) { delete(in.stored.absent, key) }

// deletedObject records the deletion of an object, by its last state.
func (in *intake[T]) deletedObject(obj T) {
	if len(in.stored.absent) == 0 {
		return
	}
	if key, err := in.queue.KeyOf(obj); err == nil {
		in.deleted(key)
	}
}

// undeleted returns errRestored if a deletion has not arrived although the copy has caught up.
func (in *intake[T]) undeleted() error {
	for key := range in.stored.absent {
		return in.restored(key, "none, and no deletion since", in.version)
	}
	return nil
}

// restored records that the source has gone back, so that the next list replaces the stored
// state, and returns the error. Is and was are what the source and the stored state have of an
// object.
func (in *intake[T]) restored(key, is, was string) error {
	in.back = true
	in.stored = comparison{}
	in.logger.Error("the server has another history than the stored state: etcd was restored from a backup", "object",
		key, "rv", is, "stored", was)
	return fmt.Errorf("%w: %s has version %s, stored %s", errRestored, key, is, was)
}
