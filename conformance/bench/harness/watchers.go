// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

const (
	// WatchersRole is the name under which [ServeWatchers] must be among the roles of the command.
	WatchersRole = "watchers"
	// watchDialers is how many watchers connect at once.
	watchDialers = 16
	// watchGrace is how long Wait waits for another event before it gives up.
	watchGrace = 5 * time.Second
	// watchPoll is how often Wait checks, and how long a watcher waits before a retry.
	watchPoll = 200 * time.Millisecond
	// watchBuffer is the size of a watcher's buffer, in bytes. It limits an event.
	watchBuffer = 64 << 10
	// watchStreamBuffer is the same for watchers that share connections, of which there
	// are thousands.
	watchStreamBuffer = 16 << 10
)

// Commands to the process of the watchers. Any other is a time in nanoseconds, from
// which on changes count.
const (
	watchProgress = "progress"
	watchReport   = "report"
)

// WatchTask is the task of watchers.
type WatchTask struct {
	At       Address
	Watchers int
	// Selector is a label selector. %d in it is replaced by the number of the watcher.
	Selector string
	// Fields is a field selector, with the same replacement.
	Fields string
	// Streams is how many watchers share a connection.
	Streams int
}

// Delivered summarizes the events that watchers received.
type Delivered struct {
	// Events counts the changes that were written after Count.
	Events int
	Bytes  int
	// Ended is how many watches the server has ended.
	Ended int
	// P50, P99 and Max are latencies, from the time at which a change was written.
	P50, P99, Max time.Duration
}

// Watchers are many watches of pods in another process.
type Watchers struct{ child *Child }

// StartWatchers returns when all watchers watch. The caller closes them.
func StartWatchers(ctx context.Context, task WatchTask) (*Watchers, error) {
	c, err := StartChild(ctx, WatchersRole, task)
	if err != nil {
		return nil, err
	}
	var watching int
	if err := c.Answer(&watching); err != nil || watching != task.Watchers {
		c.Close()
		return nil, fmt.Errorf("%d watchers of %s: %d watch: %w", task.Watchers, task.At.Name, watching, err)
	}
	return &Watchers{c}, nil
}

// Close ends the process.
func (w *Watchers) Close() { w.child.Close() }

// Count begins to count events: those that are written from now on.
func (w *Watchers) Count() error {
	if err := w.child.Command(strconv.FormatInt(time.Now().UnixNano(), 10)); err != nil {
		return err
	}
	var from int64
	return w.child.Answer(&from) // otherwise the first events may arrive before the command
}

// Wait returns when the given number of events has been counted, or none for watchGrace.
func (w *Watchers) Wait(events int) error {
	for counted, since := 0, time.Now(); counted < events && time.Since(since) < watchGrace; time.Sleep(watchPoll) {
		if err := w.child.Command(watchProgress); err != nil {
			return err
		}
		var now int
		if err := w.child.Answer(&now); err != nil {
			return err
		}
		if now > counted {
			counted, since = now, time.Now()
		}
	}
	return nil
}

// Report ends the watches and returns what was counted.
func (w *Watchers) Report() (d Delivered, err error) {
	if err := w.child.Command(watchReport); err != nil {
		return d, err
	}
	err = w.child.Answer(&d)
	return d, err
}

// ServeWatchers is the [Role] of watchers. It watches until the command to report.
func ServeWatchers(text []byte, in io.Reader, out io.Writer) error {
	var task WatchTask
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := &watchGroup{server: task.At.Server(), all: make([]*watcher, task.Watchers)}
	g.from.Store(math.MaxInt64)
	err := g.open(ctx, &task)
	answers := json.NewEncoder(out)
	if err := errors.Join(err, answers.Encode(len(g.all))); err != nil {
		return err
	}
	for commands := bufio.NewScanner(in); commands.Scan() && commands.Text() != watchReport; {
		if commands.Text() == watchProgress {
			if err := answers.Encode(g.counted.Load()); err != nil {
				return err
			}
			continue
		}
		from, err := strconv.ParseInt(commands.Text(), 10, 64)
		if err != nil {
			return err
		}
		g.from.Store(from)
		if err := answers.Encode(from); err != nil {
			return err
		}
	}
	cancel()
	g.running.Wait()
	return answers.Encode(g.summary())
}

// watchGroup is the watches of a process.
type watchGroup struct {
	server *Server
	// version is where the watches begin.
	version string
	// from is the time from which on changes count, in nanoseconds.
	from atomic.Int64
	// counted is how many changes have arrived.
	counted atomic.Int64
	all     []*watcher
	running sync.WaitGroup
}

// open begins all watches, watchDialers at once.
func (g *watchGroup) open(ctx context.Context, task *WatchTask) (err error) {
	if g.version, err = newestVersion(ctx, g.server); err != nil {
		return err
	}
	clients := make([]*http.Client, (len(g.all)+task.Streams-1)/task.Streams)
	for i := range clients {
		if clients[i], err = g.server.Client(); err != nil {
			return err
		}
	}
	numbered := func(selector string, i int) string { return strings.Replace(selector, "%d", strconv.Itoa(i), 1) }
	errs := make([]error, watchDialers)
	var opening sync.WaitGroup
	for d := range watchDialers {
		opening.Go(func() {
			for i := d; i < len(g.all) && errs[d] == nil; i += watchDialers {
				// Neighbours have different clients: a client that receives two requests
				// at once before it has a connection opens two.
				w := &watcher{
					group: g, version: g.version, client: clients[i%len(clients)],
					selector: numbered(task.Selector, i), fields: numbered(task.Fields, i), buffer: watchBuffer,
				}
				if task.Streams > 1 {
					w.buffer = watchStreamBuffer
				}
				g.all[i] = w
				body, err := w.open(ctx)
				errs[d] = err
				if err == nil {
					g.running.Go(func() { w.run(ctx, body) })
				}
			}
		})
	}
	opening.Wait()
	return errors.Join(errs...)
}

// newestVersion returns the version at which to begin to watch.
func newestVersion(ctx context.Context, s *Server) (string, error) {
	client, err := s.Client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	body, err := s.Get(ctx, client, "/api/v1/pods?limit=1", Format{Accept: JSON})
	if err != nil {
		return "", err
	}
	defer body.Close()
	list := stream.NewListReader(body, wire.JSON, nil)
	for err == nil {
		_, err = list.Next()
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return list.Meta().ResourceVersion, nil
}

// summary returns what was counted, after all watches have ended.
func (g *watchGroup) summary() (d Delivered) {
	var latencies Latencies
	for _, w := range g.all {
		latencies = append(latencies, w.latencies...)
		d.Bytes += w.bytes
		d.Ended += w.ended
	}
	d.Events = len(latencies)
	d.P50, d.P99, d.Max = latencies.Quantiles()
	return d
}

// watcher is one client. Its goroutine owns it.
type watcher struct {
	group    *watchGroup
	client   *http.Client
	selector string
	fields   string
	// buffer is how many bytes an event may have.
	buffer int
	// version is the last that the client has received, "" if that has expired.
	version   string
	latencies Latencies
	bytes     int
	// ended is how many of its watches the server has ended.
	ended int
}

func (w *watcher) open(ctx context.Context) (io.ReadCloser, error) {
	query := url.Values{"watch": {"true"}, "resourceVersion": {w.version}, "timeoutSeconds": {"3600"}}
	if w.selector != "" {
		query.Set("labelSelector", w.selector)
	}
	if w.fields != "" {
		query.Set("fieldSelector", w.fields)
	}
	return w.group.server.Get(ctx, w.client, "/api/v1/pods?"+query.Encode(), Format{Accept: JSON})
}

// run watches until ctx ends. When the server ends the watch, the watcher continues
// from its last version or, if that has expired, from now.
func (w *watcher) run(ctx context.Context, body io.ReadCloser) {
	for {
		if body != nil {
			w.read(body)
			_ = body.Close()
			if ctx.Err() == nil {
				w.ended++
			}
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if w.version == "" {
			w.version, err = newestVersion(ctx, w.group.server)
		}
		body = nil
		if err == nil {
			body, err = w.open(ctx)
		}
		if err != nil {
			time.Sleep(watchPoll)
		}
	}
}

var (
	writtenField = []byte(`"` + writtenKey + `":"`)
	versionField = []byte(`"resourceVersion":"`)
)

// read reads events until the watch ends.
func (w *watcher) read(body io.Reader) {
	lines := bufio.NewReaderSize(body, w.buffer)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		_, value, found := bytes.Cut(line, writtenField)
		if !found || len(value) < len(writtenPlaceholder) {
			w.version = "" // it is an error event: the version has expired
			return
		}
		_, version, _ := bytes.Cut(line, versionField)
		version, _, _ = bytes.Cut(version, []byte(`"`))
		w.version = string(version)
		written, err := strconv.ParseInt(string(value[:len(writtenPlaceholder)]), 10, 64)
		if err != nil {
			return
		}
		if written < w.group.from.Load() {
			continue
		}
		w.latencies = append(w.latencies, time.Duration(time.Now().UnixNano()-written))
		w.bytes += len(line)
		w.group.counted.Add(1)
	}
}
