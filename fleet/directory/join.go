// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// joinTimeout is how long a Join waits, at the start, for the parts that have not
// reported yet when others have.
const joinTimeout = 5 * time.Second

// JoinOptions tune [Join]. The zero value, and nil, are the defaults.
type JoinOptions struct {
	// Logger receives a line for each name that two parts have, and for each part that
	// has failed. Default: slog.Default().
	Logger *slog.Logger
}

// Join is a [fleet.Directory] of the clusters of several directories. If two of them
// have a cluster of the same name, the earlier one is used, and the other is logged.
//
// Follow first notifies when every part has reported its clusters or failed. After 5
// seconds it does not wait for the others any longer, and notifies as soon as one part
// has reported. So a part that cannot be read delays the rest by 5 seconds at most.
// Its clusters are added when it can be read. Then they replace clusters of the same
// name from later parts.
//
// If a part returns an error, Join logs it and keeps the clusters that the part
// reported last. Follow returns the error if no other part is left.
type Join struct {
	parts []fleet.Directory
	opts  JoinOptions
}

// NewJoin returns the directory of all clusters of parts, the earlier ones first. A nil
// opts means the defaults.
func NewJoin(parts []fleet.Directory, opts *JoinOptions) *Join {
	j := &Join{parts: slices.Clone(parts)}
	if opts != nil {
		j.opts = *opts
	}
	if j.opts.Logger == nil {
		j.opts.Logger = slog.Default()
	}
	return j
}

// String returns the names of the parts for log lines and errors.
func (j *Join) String() string {
	names := make([]string, 0, len(j.parts))
	for _, p := range j.parts {
		names = append(names, nameOf(p))
	}
	return strings.Join(names, ", ")
}

// nameOf returns a name of a directory for log lines and errors. It does not format the
// directory itself, because that could reveal credentials.
func nameOf(d fleet.Directory) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// joinState is what the parts of a Join have reported.
type joinState struct {
	board
	// parts have the errors of those that failed until the errors were logged or returned.
	parts []part
}

// take returns a copy of the state, and the errors since the last call.
func (s *joinState) take(directories []fleet.Directory) (parts []part, errs []error, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.parts {
		if p := &s.parts[i]; p.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", nameOf(directories[i]), p.err))
			p.err = nil
		}
		if !s.parts[i].failed {
			left++
		}
	}
	return slices.Clone(s.parts), errs, left
}

// Follow reports the clusters of all parts. See [fleet.Directory].
func (j *Join) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	ctx, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	state := &joinState{board: newBoard(), parts: make([]part, len(j.parts))}
	for i, directory := range j.parts {
		followers.Go(func() { state.follow(ctx, directory, &state.parts[i]) })
	}
	v := joinView{join: j, state: state, notifier: notifier{notify: notify}}
	timeout := time.NewTimer(joinTimeout)
	defer timeout.Stop()
	for {
		if err := v.update(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timeout.C:
			v.timedOut = true
		case <-state.changed:
		}
	}
}

// joinView merges the parts and notifies the caller of Follow.
type joinView struct {
	join     *Join
	state    *joinState
	notifier notifier
	clashes  clashes
	timedOut bool // joinTimeout is over
}

// update notifies if all parts have reported, or one has and the timeout is over. It
// returns an error if the last part has failed.
func (v *joinView) update() error {
	parts, errs, left := v.state.take(v.join.parts)
	if left == 0 && len(errs) > 0 {
		return fmt.Errorf("every source of clusters has failed: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		v.join.opts.Logger.Error("source of clusters failed; its clusters stay as they are", "err", err)
	}
	some, all := false, true
	for _, p := range parts {
		some = some || p.reported
		all = all && (p.reported || p.failed)
	}
	if all || some && v.timedOut {
		v.notifier.update(v.merge(parts))
	}
	return nil
}

// merge returns the entries of all parts, without those whose name an earlier part has.
func (v *joinView) merge(parts []part) []fleet.Entry {
	defer v.clashes.done()
	var entries []fleet.Entry
	type place struct{ part, entry int }
	first := map[string]place{} // the part that a name was taken from, and the index of its entry
	for i, part := range parts {
		for _, e := range part.entries {
			used, ok := first[e.Name]
			if !ok {
				first[e.Name] = place{i, len(entries)}
				entries = append(entries, e)
				continue
			}
			taken := &entries[used.entry]
			taken.Shadowed = append(slices.Clip(taken.Shadowed), nameOf(v.join.parts[i]))
			if v.clashes.add(fmt.Sprintf("%d/%s", i, e.Name)) {
				v.join.opts.Logger.Warn("cluster left out: an earlier source has one of the same name",
					"cluster", e.Name, "source", nameOf(v.join.parts[i]), "used", nameOf(v.join.parts[used.part]))
			}
		}
	}
	return entries
}
