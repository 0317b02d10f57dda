// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/watershed-project/watershed/cmd/watershed/internal/access"
	"github.com/watershed-project/watershed/cmd/watershed/internal/defaults"
	"github.com/watershed-project/watershed/replica"
)

// Options configure a [Log].
type Options struct {
	// Path is the file to append to, "-" for the standard output.
	Path string
	// MaxSize is the most bytes that the file may have before it gets the number 1 and a new
	// one begins. The standard output has no limit. Default 100 MiB.
	MaxSize int64
	// MaxBackups is how many old files remain. 0 means none.
	MaxBackups int
	// Logger receives messages about lost events. Default: slog.Default().
	Logger *slog.Logger
}

const (
	defaultMaxSize = 100 << 20
	// maxPending and maxEvents limit the queue: 8 MiB are about 8,000 events of 1 KB. Both
	// buffers of the queue together have at most twice as much.
	maxPending = 8 << 20
	maxEvents  = 64 << 10
	// gather is how long events are gathered for one write, and gatherMost how many bytes
	// end that earlier.
	gather     = 50 * time.Millisecond
	gatherMost = 256 << 10
	// keepMost is the largest buffer that is kept for the next batch.
	keepMost = 1 << 20
	// complainEvery is the least time between two messages about lost events.
	complainEvery = time.Minute
)

// Stats are counters of a [Log].
type Stats struct {
	// Written and Dropped are how many events have been written, and how many were lost
	// because the queue was full or the disk failed. Bytes is the size of those written.
	Written, Dropped, Bytes uint64
	// Pending is how many events wait.
	Pending int
}

// Log writes audit events. All methods are safe for concurrent use.
type Log struct {
	logger *slog.Logger
	file   *file // nil for the standard output
	out    io.Writer
	// run is a random number that distinguishes the audit IDs of this process from others.
	run uint64
	// wake has an element if events wait, and full if they are many.
	wake, full chan struct{}

	// mu guards the fields below.
	mu      sync.Mutex
	pending []byte
	events  int
	spare   []byte
	ended   bool
	stats   Stats
}

// Open returns a log. The caller runs [Log.Run], which closes the file.
func Open(opts Options) (*Log, error) {
	l := &Log{
		logger: cmp.Or(opts.Logger, slog.Default()), run: rand.Uint64(),
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
	switch opts.Path {
	case "":
		return nil, errors.New("audit log: no file")
	case "-":
		l.out = os.Stdout
		return l, nil
	}
	defaults.Set(&opts.MaxSize, defaultMaxSize)
	file, err := openFile(opts.Path, opts.MaxSize, max(0, opts.MaxBackups))
	if err != nil {
		return nil, err
	}
	l.file = file
	return l, nil
}

// Rotate changes when the file is replaced, and how many old files remain, from the next event
// on. The standard output has neither.
func (l *Log) Rotate(maxSize int64, maxBackups int) {
	if l.file != nil {
		l.file.rotation.Store(&rotation{most: maxSize, backups: max(0, maxBackups)})
	}
}

// buffers has the buffers in which events are encoded.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Audit records a request. It is [replica.Options.Audit].
func (l *Log) Audit(r *http.Request, q *replica.Request, o replica.Outcome) {
	e := newEvent(r, q, o, access.CallOf(r))
	e.AuditID = auditID(l.run, o.Number)
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		l.drop(1) // impossible: an event has only texts, numbers and times
		return
	}
	l.add(b.Bytes())
}

// auditID returns the ID of a request in the form of a UUID of version 8. The number is in
// it as it is: audit IDs are not secrets.
func auditID(run, number uint64) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], run&^0xf000|0x8000)
	binary.BigEndian.PutUint64(id[8:], number&^(3<<62)|2<<62)
	return id.String()
}

// add puts a line into the queue, or drops it if the queue is full.
func (l *Log) add(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.pending)+len(line) > maxPending || l.events >= maxEvents {
		l.stats.Dropped++
		return
	}
	if l.pending == nil {
		l.pending, l.spare = l.spare, nil
	}
	l.pending = append(l.pending, line...)
	l.events++
	notify(l.wake)
	if len(l.pending) >= gatherMost {
		notify(l.full)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drop counts lost events.
func (l *Log) drop(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Dropped += uint64(n)
}

// take returns the events that wait, and keeps a buffer that is free again.
func (l *Log) take(free []byte) (lines []byte, events int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(free) > 0 && cap(free) <= keepMost {
		l.spare = free[:0]
	}
	lines, events = l.pending, l.events
	l.pending, l.events = nil, 0
	return lines, events
}

// Stats returns the counters.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := l.stats
	is.Pending = l.events
	return is
}

// Run writes events until a moment after ctx ends. Events that come later are dropped.
func (l *Log) Run(ctx context.Context) error {
	if l.file != nil {
		defer l.file.close()
	}
	c := complaint{log: l}
	var lines []byte
	for {
		select {
		case <-l.wake:
			pause(ctx, l.full)
		case <-ctx.Done():
			time.Sleep(gather) // requests that have just ended are still being recorded
			l.mu.Lock()
			l.ended = true
			l.mu.Unlock()
		}
		var events int
		lines, events = l.take(lines)
		c.note(l.write(lines, events))
		if ctx.Err() != nil && l.done() {
			c.end()
			return nil
		}
	}
}

// done reports whether no more events can come.
func (l *Log) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended && l.events == 0
}

// pause waits a moment, so that more events are written at once.
func pause(ctx context.Context, enough <-chan struct{}) {
	t := time.NewTimer(gather)
	defer t.Stop()
	select {
	case <-t.C:
	case <-enough:
	case <-ctx.Done():
	}
}

// write writes a batch, and counts what was lost.
func (l *Log) write(lines []byte, events int) error {
	if events == 0 {
		return nil
	}
	var n int
	var err error
	if l.file != nil {
		n, err = l.file.write(lines)
	} else {
		n, err = l.out.Write(lines)
	}
	written := bytes.Count(lines[:n], []byte{'\n'})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Written += uint64(written)
	l.stats.Dropped += uint64(events - written)
	l.stats.Bytes += uint64(n)
	return err
}

// complaint logs lost events, at most once a minute.
type complaint struct {
	log *Log
	// last is when events were reported as lost, and dropped how many had been by then.
	last    time.Time
	dropped uint64
	err     error
}

// note reports lost events if it is time, with the last error.
func (c *complaint) note(err error) {
	if err != nil {
		c.err = err
	}
	if time.Since(c.last) >= complainEvery {
		c.end()
	}
}

// end reports events that were lost and not reported yet.
func (c *complaint) end() {
	dropped := c.log.Stats().Dropped
	if dropped == c.dropped {
		return
	}
	args := []any{"events", dropped - c.dropped}
	if c.err != nil {
		args = append(args, "err", c.err)
	}
	c.log.logger.Error("audit events are lost", args...)
	c.last, c.dropped, c.err = time.Now(), dropped, nil
}
