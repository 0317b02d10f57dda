// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/wire"
)

const (
	// dialling is how many watchers connect at once.
	dialling = 16
	// watchGrace is how long no event comes when no more will, watchPoll how often that
	// is looked at.
	watchGrace, watchPoll = 5 * time.Second, 200 * time.Millisecond
	// largeBuffer is what a watcher reads into, smallBuffer one of thousands.
	largeBuffer, smallBuffer = 64 << 10, 16 << 10
)

// watchTask is what watchers watch.
type watchTask struct {
	At       access
	Watchers int
	// Selector is a label selector, Fields a field selector; %d in them is the number of
	// the watcher.
	Selector, Fields string
	// Streams is how many watchers share a connection.
	Streams int
}

// delivered is what watchers got.
type delivered struct {
	// Events are those that were written after the order to count. Ended is how many
	// watches the server has ended.
	Events, Bytes, Ended int
	// P50, P99 and Max are of the times from when a change was written.
	P50, P99, Max time.Duration
}

// watchers are many watches of pods in another process.
type watchers struct{ *companion }

// startWatchers returns when all watch.
func startWatchers(ctx context.Context, task watchTask) (*watchers, error) {
	c, err := startCompanion(ctx, "watch", "watchers", task)
	if err != nil {
		return nil, err
	}
	var watching int
	if err := c.answers.Decode(&watching); err != nil || watching != task.Watchers {
		c.close()
		return nil, fmt.Errorf("%d watchers of %s: %d watch: %w", task.Watchers, task.At.Name, watching, err)
	}
	return &watchers{c}, nil
}

// count begins to count events: those that are written from now on.
func (w *watchers) count() error { return w.tell(strconv.FormatInt(time.Now().UnixNano(), 10)) }

// wait returns when so many events have come, or none for so long that no more will.
func (w *watchers) wait(events int) error {
	for had, since := 0, time.Now(); had < events && time.Since(since) < watchGrace; time.Sleep(watchPoll) {
		if err := w.tell("progress"); err != nil {
			return err
		}
		var now int
		if err := w.answers.Decode(&now); err != nil {
			return err
		}
		if now > had {
			had, since = now, time.Now()
		}
	}
	return nil
}

// report ends the watches.
func (w *watchers) report() (d delivered, err error) {
	if err := w.tell("report"); err != nil {
		return d, err
	}
	return d, w.answers.Decode(&d)
}

// flock is the watches of a process.
type flock struct {
	server  *server
	version string // where they begin
	// from is the time from which on changes count, and counted how many have come.
	from, counted atomic.Int64
	all           []*watcher
	running       sync.WaitGroup
}

// beWatchers watches until it is told to report.
func beWatchers(text []byte, in io.Reader, out io.Writer) error {
	var task watchTask
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &flock{server: task.At.server(), all: make([]*watcher, task.Watchers)}
	f.from.Store(math.MaxInt64)
	err := f.open(ctx, &task)
	answers := json.NewEncoder(out)
	if err := errors.Join(err, answers.Encode(len(f.all))); err != nil {
		return err
	}
	for orders := bufio.NewScanner(in); orders.Scan() && orders.Text() != "report"; {
		if orders.Text() == "progress" {
			if err := answers.Encode(f.counted.Load()); err != nil {
				return err
			}
			continue
		}
		from, err := strconv.ParseInt(orders.Text(), 10, 64)
		if err != nil {
			return err
		}
		f.from.Store(from)
	}
	cancel()
	f.running.Wait()
	return answers.Encode(f.summary())
}

// open begins all watches, some at once.
func (f *flock) open(ctx context.Context, task *watchTask) (err error) {
	if f.version, err = newestVersion(ctx, f.server); err != nil {
		return err
	}
	clients := make([]*http.Client, (len(f.all)+task.Streams-1)/task.Streams)
	for i := range clients {
		if clients[i], err = f.server.client(); err != nil {
			return err
		}
	}
	numbered := func(selector string, i int) string { return strings.Replace(selector, "%d", strconv.Itoa(i), 1) }
	errs := make([]error, dialling)
	var opening sync.WaitGroup
	for d := range dialling {
		opening.Go(func() {
			for i := d; i < len(f.all) && errs[d] == nil; i += dialling {
				// Neighbours have different connections: two that ask for one at once would get two.
				w := &watcher{
					flock: f, version: f.version, client: clients[i%len(clients)],
					selector: numbered(task.Selector, i), fields: numbered(task.Fields, i), buffer: largeBuffer,
				}
				if task.Streams > 1 {
					w.buffer = smallBuffer
				}
				f.all[i] = w
				body, err := w.open(ctx)
				if errs[d] = err; err == nil {
					f.running.Go(func() { w.run(ctx, body) })
				}
			}
		})
	}
	opening.Wait()
	return errors.Join(errs...)
}

// newestVersion is where to begin to watch.
func newestVersion(ctx context.Context, s *server) (string, error) {
	client, err := s.client()
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	body, err := s.ask(ctx, client, "/api/v1/pods?limit=1", form{accept: asJSON})
	if err != nil {
		return "", err
	}
	defer body.Close()
	list := wire.NewListReader(body, wire.JSON, nil)
	for err == nil {
		_, err = list.Next()
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	return list.Meta().ResourceVersion, nil
}

// watcher is one client. Its goroutine owns it.
type watcher struct {
	flock            *flock
	client           *http.Client
	selector, fields string
	// buffer is how many bytes an event may have.
	buffer int
	// version is what the client has seen.
	version string
	lags    []time.Duration
	bytes   int
	// ended is how many of its watches have.
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
	return w.flock.server.ask(ctx, w.client, "/api/v1/pods?"+query.Encode(), form{accept: asJSON})
}

// run follows a watch until ctx ends. When the server ends it, the watcher goes on
// from what it has seen or, if that is too old, from now.
func (w *watcher) run(ctx context.Context, body io.ReadCloser) {
	for {
		if body != nil {
			w.follow(body)
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
			w.version, err = newestVersion(ctx, w.flock.server)
		}
		if body = nil; err == nil {
			body, err = w.open(ctx)
		}
		if err != nil {
			time.Sleep(watchPoll)
		}
	}
}

var writtenField, versionField = []byte(`"` + writtenKey + `":"`), []byte(`"resourceVersion":"`)

// follow reads events until the watch ends.
func (w *watcher) follow(body io.Reader) {
	lines := bufio.NewReaderSize(body, w.buffer)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		_, value, found := bytes.Cut(line, writtenField)
		if !found || len(value) < len(writtenMark) {
			w.version = "" // it is an error: the version is too old
			return
		}
		_, version, _ := bytes.Cut(line, versionField)
		version, _, _ = bytes.Cut(version, []byte(`"`))
		w.version = string(version)
		written, err := strconv.ParseInt(string(value[:len(writtenMark)]), 10, 64)
		if err != nil {
			return
		}
		if written < w.flock.from.Load() {
			continue
		}
		w.lags = append(w.lags, time.Duration(time.Now().UnixNano()-written))
		w.bytes += len(line)
		w.flock.counted.Add(1)
	}
}

// summary is of what was counted, when nobody watches any more.
func (f *flock) summary() (d delivered) {
	var lags []time.Duration
	for _, w := range f.all {
		lags = append(lags, w.lags...)
		d.Bytes += w.bytes
		d.Ended += w.ended
	}
	if d.Events = len(lags); d.Events > 0 {
		slices.Sort(lags)
		d.P50, d.P99, d.Max = lags[d.Events/2], lags[d.Events*99/100], lags[d.Events-1]
	}
	return d
}
