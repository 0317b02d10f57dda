// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
)

// The server is a source: it lists and watches by the rules for both.
var _ reflector.Source[pod] = (*server)(nil)

// listing formats list options: `list 5 or newer, limit 1`.
func listing(opts reflector.ListOptions) string {
	words := fmt.Sprintf("list %q", opts.Version)
	if opts.Continue != "" {
		words += " from " + opts.Continue
	}
	if opts.NotOlder {
		words += " or newer"
	}
	if opts.Limit > 0 {
		words += fmt.Sprintf(", limit %d", opts.Limit)
	}
	return words
}

func (s *server) List(ctx context.Context, opts reflector.ListOptions, each func(pod) error) (reflector.Page, error) {
	f := s.ask(lists, listing(opts))
	if err := f.answer(ctx); err != nil {
		return reflector.Page{}, err
	}
	pods, page, err := s.page(opts, f)
	if err != nil {
		return reflector.Page{}, err
	}
	for i, p := range pods {
		if err := f.reach(ctx, i); err != nil {
			return reflector.Page{}, err
		}
		if i < f.skipped {
			page.Skipped = append(page.Skipped, &reflector.Error{
				Reason: reflector.Undecodable, Key: f.skippedKey, Err: errors.New("garbled"),
			})
			continue
		}
		if err := each(p); err != nil {
			return reflector.Page{}, err
		}
	}
	if f.cut != nil || f.deaf {
		return reflector.Page{}, f.reach(ctx, f.after)
	}
	return page, nil
}

// page returns the result of a list request, by the rules for versions and limits.
func (s *server) page(opts reflector.ListOptions, f fault) ([]pod, reflector.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, start := s.version, ""
	switch {
	case s.absent:
		return nil, reflector.Page{}, notServed
	case opts.NotOlder && opts.Version == "":
		return nil, reflector.Page{}, errUnmatched
	case opts.Continue != "":
		at, after, _ := strings.Cut(opts.Continue, "/")
		version, _ = strconv.Atoi(at)
		start = after
		if version < s.forgotten || version > s.version {
			return nil, reflector.Page{}, expired
		}
	case opts.Version == "" || opts.Version == "0":
	case opts.NotOlder || opts.Limit == 0:
		if asked, _ := strconv.Atoi(opts.Version); asked > s.version {
			return nil, reflector.Page{}, tooLarge
		}
	default:
		// This asks for exactly that version, which the reflector should never do.
		return nil, reflector.Page{}, errors.New("list of an exact version")
	}
	if f.stale > 0 {
		version = f.stale
	}
	pods := slices.DeleteFunc(sorted(s.stateLocked(version)), func(p pod) bool {
		return p.Name <= start && start != ""
	})
	page := reflector.Page{Version: fmt.Sprint(version)}
	if s.unversioned {
		page.Version = ""
	}
	if n := int(opts.Limit); n > 0 && n < len(pods) {
		pods = pods[:n]
		page.Continue = fmt.Sprintf("%d/%s", version, pods[n-1].Name)
	}
	return pods, page, nil
}

// Get implements [reflector.Getter]. The text of a pod is its UID.
func (s *server) Get(ctx context.Context, key string) (uid, version string, err error) {
	f := s.ask(gets, "get "+key)
	if err := f.answer(ctx); err != nil {
		return "", "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.stateLocked(s.version)[key]
	if !ok {
		return "", "", nil
	}
	return p.Text, fmt.Sprint(p.Version), nil
}

func (s *server) Served(ctx context.Context) (bool, error) {
	f := s.ask(serves, "served?")
	if err := f.answer(ctx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.absent, nil
}

// answer returns the error if a request fails at once.
func (f *fault) answer(ctx context.Context) error {
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	if f.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.err
}

// reach returns the error if a request fails before the next object or event.
func (f *fault) reach(ctx context.Context, n int) error {
	if f.pace > 0 {
		select {
		case <-time.After(f.pace):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch {
	case n < f.after:
	case f.cut != nil:
		return f.cut
	case f.deaf:
		<-ctx.Done()
	}
	return ctx.Err()
}

// watch is a stream of the server. The server's lock guards it.
type watch struct {
	server *server
	ctx    context.Context
	fault  fault
	// from is the version after which events begin.
	from int
	// items are to be sent; sent counts those that were.
	items []item
	sent  int
	deaf  bool
	wake  chan struct{}
	// over is when the server ends the watch, mark when the next bookmark is due.
	over, mark time.Time
}

func (s *server) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[pod], error) {
	what := "watch " + opts.Version
	if opts.InitialEvents {
		what = strings.TrimSpace("stream " + opts.Version)
	}
	if opts.Nothing {
		what = "current version"
	}
	if opts.NewConnection {
		what += " apart"
	}
	f := s.ask(watches, what)
	if err := f.answer(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	w := &watch{
		server: s,
		ctx:    ctx,
		fault:  f,
		items:  f.first,
		wake:   make(chan struct{}, 1),
		over:   now.Add(opts.Timeout),
		mark:   now.Add(s.marks),
	}
	if last := w.over.Add(-2 * time.Second); last.After(now) && last.Before(w.mark) {
		w.mark = last
	}
	w.from, _ = strconv.Atoi(opts.Version)
	switch initial := opts.InitialEvents; {
	case s.absent:
		return nil, notServed
	case initial && s.mode == refuses:
		return nil, notSupported
	case initial && w.from > s.version:
		return nil, tooLarge
	case initial && s.mode == streams:
		w.from = s.version
		if !opts.Nothing || s.careless {
			w.stateLocked()
		}
		w.pushLocked(item{
			event: reflector.Event[pod]{Type: delta.Bookmark, Version: fmt.Sprint(s.version), InitialEnd: true},
		})
	case opts.Version == "":
		w.from = s.version
		w.stateLocked()
	case w.from < s.forgotten:
		w.pushLocked(item{err: expired})
	default:
		for _, e := range s.log {
			if e.Object.Version > w.from {
				w.pushLocked(item{event: e})
			}
		}
	}
	s.open[w], s.last = struct{}{}, w.over
	return w, nil
}

// stateLocked sends the whole state.
func (w *watch) stateLocked() {
	for _, p := range sorted(w.server.stateLocked(w.server.version)) {
		w.pushLocked(item{event: event(delta.Added, p)})
	}
}

func (w *watch) pushLocked(items ...item) {
	w.items = append(w.items, items...)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) Next() (reflector.Event[pod], error) {
	if err := w.fault.reach(w.ctx, w.sent); err != nil {
		return reflector.Event[pod]{}, err
	}
	for {
		if i, ok := w.take(); ok {
			w.sent++
			return i.event, i.err
		}
		if err := w.rest(); err != nil {
			return reflector.Event[pod]{}, err
		}
	}
}

// take returns the next item, if there is one now.
func (w *watch) take() (item, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case w.deaf || w.ctx.Err() != nil:
	case len(w.items) > 0:
		i := w.items[0]
		w.items = w.items[1:]
		if s.unversioned {
			i.event.Version = ""
		}
		return i, true
	case !now.Before(w.over):
		return item{err: io.EOF}, true
	case s.marks > 0 && !now.Before(w.mark):
		w.mark = now.Add(s.marks)
		// A watch from a version that is not reached yet receives nothing at all.
		if s.version >= w.from {
			return item{event: reflector.Event[pod]{Type: delta.Bookmark, Version: fmt.Sprint(s.version)}}, true
		}
	}
	return item{}, false
}

// rest waits until there may be an item.
func (w *watch) rest() error {
	s := w.server
	s.mu.Lock()
	next := w.over
	if s.marks > 0 && w.mark.Before(next) {
		next = w.mark
	}
	var due <-chan time.Time
	if !w.deaf {
		due = time.After(time.Until(next))
	}
	s.mu.Unlock()
	select {
	case <-w.wake:
	case <-due:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	return nil
}

func (w *watch) Close() error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.open, w)
	return nil
}
