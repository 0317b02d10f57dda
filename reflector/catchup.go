// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watershed-project/watershed/delta"
)

const (
	// catchUpTimeout is how long a watch lasts while the copy catches up. kube-apiserver
	// sends a bookmark 2 seconds before the end of a watch, and otherwise once a minute.
	catchUpTimeout = 3 * time.Second
	// aimTimeout is how long the source may take to send its current version.
	aimTimeout = 30 * time.Second
)

// errObjects is the error for a server that sends objects although none is selected.
var errObjects = errors.New("the server ignores the field selector")

// aim compares stored objects with the source, and then requests the current version of the
// source, which the copy has to reach.
func (in *intake[T]) aim(ctx context.Context) error {
	unanswered := in.compareStored(ctx)
	if errors.Is(unanswered, errRestored) {
		return unanswered
	}
	version, err := in.currentVersion(ctx)
	if ReasonOf(err) == NotSupported || errors.Is(err, errObjects) {
		var page Page
		page, err = in.page(ctx, ListOptions{Limit: 1}, func(T) error { return nil })
		version = page.Version
	}
	switch {
	case err != nil:
		return fmt.Errorf("current version: %w", err)
	case number(version) < number(in.version):
		return fmt.Errorf("%w: %s after %s", errBack, version, in.version)
	}
	if err := in.uncompared(unanswered); err != nil {
		return err
	}
	in.goal.Store(number(version))
	return in.caughtUp(ctx)
}

// currentVersion returns the current version of the source: that of the bookmark after the
// initial events of a watch that selects no objects.
func (in *intake[T]) currentVersion(ctx context.Context) (string, error) {
	quiet := listen(ctx, min(aimTimeout, in.opts.Silence), time.Time{})
	defer quiet.stop()
	watch, err := in.source.Watch(quiet.ctx, WatchOptions{InitialEvents: true, Nothing: true, Timeout: aimTimeout})
	if err != nil {
		return "", quiet.cause(err)
	}
	defer watch.Close()
	e, err := watch.Next()
	switch {
	case err != nil:
		return "", quiet.cause(err)
	case e.Type != delta.Bookmark:
		return "", errObjects
	case !e.InitialEnd:
		return "", &Error{Reason: NotSupported, Err: errors.New("the server ignores the request for initial events")}
	}
	in.heard("")
	return e.Version, nil
}

// caughtUp queues a bookmark if the copy has reached the goal.
func (in *intake[T]) caughtUp(ctx context.Context) error {
	if number(in.version) < in.goal.Load() {
		return nil
	}
	if err := in.undeleted(); err != nil {
		return err
	}
	in.continued, in.stored = false, comparison{}
	in.enter(Watching)
	in.logger.Info("stored state is current", "rv", in.version)
	return in.queue.Bookmark(ctx, number(in.version))
}
