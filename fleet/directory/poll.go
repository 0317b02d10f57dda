// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package directory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/watershed-project/watershed/fleet"
)

// pollInterval is how often files are checked for changes. They are polled and not
// watched: a mounted Secret changes by a new target of a symbolic link above the file,
// network file systems do not send notifications, and checking a thousand files takes
// a few milliseconds.
const pollInterval = 2 * time.Second

// poller is the one loop of all sources that read files, and of other sources that must be asked.
type poller struct {
	interval time.Duration // pollInterval, except in tests
	logger   *slog.Logger
	source   string // the name of the source, for log lines
	// last is the current error. Copies of the poller share it.
	last *present
}

// present is the error of a source that cannot be read at present.
type present struct {
	mu  sync.Mutex
	err error // nil if the source can be read
}

// swap replaces the error, and returns the previous one.
func (p *present) swap(err error) (before error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.err = p.err, err
	return before
}

// Err returns why the source cannot be read at present, nil if it can be.
func (p *present) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// newPoller returns a poller that logs to logger, or to slog.Default() if that is nil.
func newPoller(logger *slog.Logger, source string) poller {
	if logger == nil {
		logger = slog.Default()
	}
	return poller{interval: pollInterval, logger: logger, source: source, last: &present{}}
}

// run calls check at once and then every interval until ctx ends. If check returns
// true, the next call is after settleTime instead.
func (p *poller) run(ctx context.Context, check func() (soon bool)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return
		}
		wait := p.interval
		if check() {
			wait = min(wait, settleTime)
		}
		timer.Reset(wait)
	}
}

// follow calls read at once, and again after a change of the files that it has read,
// until ctx ends. It notifies with the entries that read returns. An error is logged,
// and the last entries stay.
func (p *poller) follow(
	ctx context.Context, read func(*fileStates) ([]fleet.Entry, error), notify func([]fleet.Entry),
) {
	n := notifier{notify: notify}
	var files tracked
	p.run(ctx, func() bool {
		due, soon := files.due()
		if !due {
			return soon
		}
		r := newFileStates()
		entries, err := read(r)
		files.done(r)
		if ctx.Err() != nil {
			return false
		}
		p.log(err)
		if err == nil {
			n.update(entries)
		}
		return false
	})
}

// log writes a line when an error begins, changes or ends. A nil err is the end.
func (p *poller) log(err error) {
	before := p.last.swap(err)
	switch {
	case err == nil && before == nil, err != nil && before != nil && err.Error() == before.Error():
	case err != nil:
		p.logger.Warn("cannot read clusters; they stay as they are", "source", p.source, "err", err)
	default:
		p.logger.Info("clusters can be read again", "source", p.source)
	}
}
