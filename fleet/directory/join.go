// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// joinTimeout is how long a Join waits, at the start and after its parts were replaced, for
// the parts that have not reported yet when others have.
const joinTimeout = 5 * time.Second

// JoinOptions tune [Join]. The zero value, and nil, are the defaults.
type JoinOptions struct {
	// Logger receives a line for each name that two parts have, for each part that has
	// failed, and for each that the Join does not wait for any longer. Default:
	// slog.Default().
	Logger *slog.Logger
}

// Part is one directory of a [Join].
type Part struct {
	// Name identifies the part when parts are replaced: a directory replaces the one that
	// had its name before. Names are distinct.
	Name      string
	Directory fleet.Directory
}

// Join is a [fleet.Sources] of the clusters of several directories. If two of them have a
// cluster of the same name, the earlier one is used, and the other is logged. A Join also adds
// labels to clusters. All methods are safe for concurrent use, except that Follow runs once at
// a time.
//
// Follow first notifies when every part has reported its clusters or failed. After 5
// seconds it does not wait for the others any longer, and notifies as soon as one part
// has reported. So a part that cannot be read delays the rest by 5 seconds at most.
// Its clusters are added when it can be read. Then they replace clusters of the same
// name from later parts. Until then [Join.Sources] says that it has not reported.
//
// [Join.Use] replaces parts while the Join is followed. Only a part that has reported takes
// clusters away, or a part that was removed:
//
//   - The clusters of a part stay until the directory that replaces it has reported its own.
//     Until then the previous directory is followed.
//   - The clusters of a part that was removed stay until every other part has reported, because
//     one of those may have them. After 5 seconds they leave if one other part has reported.
//
// If a part returns an error, Join logs it and keeps the clusters that the part
// reported last. Follow returns the error if no other part is left.
type Join struct {
	opts JoinOptions
	// changed receives a value after a change of what mu guards.
	changed chan struct{}

	// mu guards the fields below, and what the parts have reported.
	mu    sync.Mutex
	parts []Part
	// uses counts the calls of Use.
	uses   int
	labels map[string]map[string]string
	// published are the states of the parts in the last report.
	published []publishedState
}

// NewJoin returns the directory of all clusters of parts, the earlier ones first. A nil
// opts means the defaults.
func NewJoin(parts []Part, opts *JoinOptions) *Join {
	j := &Join{changed: make(chan struct{}, 1)}
	if opts != nil {
		j.opts = *opts
	}
	if j.opts.Logger == nil {
		j.opts.Logger = slog.Default()
	}
	j.Use(parts)
	return j
}

// Use replaces the parts.
func (j *Join) Use(parts []Part) {
	j.set(func() { j.parts, j.uses = slices.Clone(parts), j.uses+1 })
}

// Label replaces the labels that are added to those that the parts report, by the names of
// the clusters. They have precedence.
func (j *Join) Label(labels map[string]map[string]string) {
	j.set(func() { j.labels = labels })
}

// set makes a change and wakes Follow.
func (j *Join) set(change func()) {
	j.mu.Lock()
	change()
	j.mu.Unlock()
	select {
	case j.changed <- struct{}{}:
	default:
	}
}

// String returns the names of the directories for log lines and errors.
func (j *Join) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	names := make([]string, 0, len(j.parts))
	for _, p := range j.parts {
		names = append(names, nameOf(p.Directory))
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

// publishedState is the state of a part in a report of a Join.
type publishedState struct {
	fleet.SourceState
	directory fleet.Directory
}

// Sources returns the states of the parts, in their order. A part has reported if its clusters
// are in the last report of the Join: the caller of Follow has them.
func (j *Join) Sources() []fleet.SourceState {
	j.mu.Lock()
	published := j.published
	j.mu.Unlock()
	all := make([]fleet.SourceState, len(published))
	for i, p := range published {
		all[i] = p.SourceState
		if d, ok := p.directory.(interface{ Err() error }); ok && all[i].Err == nil {
			all[i].Err = d.Err()
		}
	}
	return all
}

// Follow reports the clusters of all parts. See [fleet.Directory].
func (j *Join) Follow(ctx context.Context, notify func([]fleet.Entry)) error {
	v := &joinView{join: j, notifier: notifier{notify: notify}}
	defer v.end()
	timeout := time.NewTimer(joinTimeout)
	defer timeout.Stop()
	for {
		if v.arrange(ctx) {
			v.timedOut = false
			timeout.Reset(joinTimeout)
		}
		if err := v.update(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timeout.C:
			v.timedOut = true
			v.complain()
		case <-j.changed:
		}
	}
}
