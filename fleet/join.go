// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// JoinOptions tune [Join]. The zero value, and nil, are the defaults.
type JoinOptions struct {
	// Patience is how long to wait, at the beginning, for directories that have not
	// told anything, when others have. Default 5 seconds.
	Patience time.Duration
	// Logger is told of names that two directories have, and of directories that
	// have failed. Default: slog.Default().
	Logger *slog.Logger
}

// Joined is several directories as one. See [Join].
type Joined struct {
	parts []Directory
	opts  JoinOptions
}

// Join returns a [Directory] of the clusters of several. Of two that know a cluster
// of the same name the earlier one counts, which is logged.
//
// It begins to tell when every part has told something or has failed, or after
// [JoinOptions.Patience] with what is known by then; if that is nothing, with the
// first that is. So a part that cannot be read holds up the others for that time
// and no longer. Its clusters come when it can be read, and a cluster of the same
// name gives way to it if it is an earlier part.
//
// A part that fails for good is logged, and what it told last stays. When no other is
// left, Follow returns the error instead. A nil opts means the defaults.
func Join(opts *JoinOptions, directories ...Directory) *Joined {
	j := &Joined{parts: directories}
	if opts != nil {
		j.opts = *opts
	}
	if j.opts.Patience <= 0 {
		j.opts.Patience = 5 * time.Second
	}
	if j.opts.Logger == nil {
		j.opts.Logger = slog.Default()
	}
	return j
}

// joining is the state of the parts while they are followed.
type joining struct {
	// changed has something when something has changed.
	changed chan struct{}

	// mu guards what follows.
	mu    sync.Mutex
	parts []joinedPart
	left  int // parts that have not failed
}

// joinedPart is what is known of a part.
type joinedPart struct {
	entries      []Entry // as it told them last
	told, failed bool
	err          error // why it has failed, until somebody was told
}

func (j *joining) set(change func()) {
	j.mu.Lock()
	change()
	j.mu.Unlock()
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// Follow tells the clusters of all parts. See [Directory].
func (j *Joined) Follow(ctx context.Context, tell func([]Entry)) error {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	state := &joining{changed: make(chan struct{}, 1), parts: make([]joinedPart, len(j.parts)), left: len(j.parts)}
	for i, directory := range j.parts {
		part := &state.parts[i]
		followers.Go(func() {
			err := directory.Follow(ctx, func(entries []Entry) {
				state.set(func() { part.entries, part.told = entries, true })
			})
			if err != nil {
				state.set(func() { part.failed, part.err, state.left = true, err, state.left-1 })
			}
		})
	}
	v := joinedView{joined: j, state: state, told: teller{tell: tell}}
	patience := time.NewTimer(j.opts.Patience)
	defer patience.Stop()
	for {
		if err := v.update(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-patience.C:
			v.impatient = true
		case <-state.changed:
		}
	}
}

// joinedView is what is made of the parts.
type joinedView struct {
	joined    *Joined
	state     *joining
	told      teller
	clashes   clashes
	impatient bool
}

// update tells what is known, if it is time to. The error is why the last parts have
// failed, if no other is left.
func (v *joinedView) update() error {
	parts, errs, left := v.state.take()
	if left == 0 && len(errs) > 0 {
		return fmt.Errorf("no directory is left: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		v.joined.opts.Logger.Error("directory failed: its clusters stay as they were", "err", err)
	}
	some, all := false, true
	for _, p := range parts {
		some = some || p.told
		all = all && (p.told || p.failed)
	}
	if all || some && v.impatient {
		v.told.update(v.merge(parts))
	}
	return nil
}

// take is the state now, and what has failed since the last time.
func (j *joining) take() (parts []joinedPart, errs []error, left int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.parts {
		if p := &j.parts[i]; p.err != nil {
			errs = append(errs, fmt.Errorf("directory %d of %d: %w", i+1, len(j.parts), p.err))
			p.err = nil
		}
	}
	return slices.Clone(j.parts), errs, j.left
}

// merge has every name once.
func (v *joinedView) merge(parts []joinedPart) []Entry {
	defer v.clashes.done()
	var entries []Entry
	whose := map[string]int{}
	for i, part := range parts {
		for _, e := range part.entries {
			first, ok := whose[e.Name]
			if !ok {
				whose[e.Name] = i
				entries = append(entries, e)
				continue
			}
			if v.clashes.add(fmt.Sprintf("%d/%s", i, e.Name)) {
				v.joined.opts.Logger.Warn("cluster is left out: an earlier directory has one of the same name",
					"cluster", e.Name, "directory", i+1, "earlier", first+1)
			}
		}
	}
	return entries
}
