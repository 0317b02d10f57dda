// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

const (
	// bookmarkEvery is how often a watch says how far it is, beforeEnd how long before
	// its end it does so once more.
	bookmarkEvery, beforeEnd = time.Minute, 2 * time.Second
	// watchLeast is how long a watch lasts, at least, whose client does not say.
	watchLeast = 30 * time.Minute
	// gather is how many bytes of events are written at once.
	gather = 64 << 10
)

// initialEnd marks the bookmark behind the initial events.
const initialEnd = "k8s.io/initial-events-end"

// stream answers with events.
func (q *request) stream(opts *internalversion.ListOptions) error {
	m, err := newMatcher(q.server, opts, q.target, q.known.fields)
	if err != nil {
		return err
	}
	v, err := version(opts.ResourceVersion)
	if err != nil {
		return err
	}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	var now *fleet.Moment
	if initial || v == 0 {
		// Nothing has been said yet: this can still be an error of its own.
		if now, err = q.at(v); err != nil {
			return err
		}
	} else if _, err := q.feed.Now(); err != nil {
		return notReady()
	}
	s, err := q.openStream(opts)
	if err != nil {
		return err
	}
	ctx := q.r.Context()
	s.deadline = time.Now().Add(timeout(opts))
	w := &clusterWatch{stream: s, feed: q.feed, matcher: m, namespaced: q.namespaced, after: v}
	return s.run(func() error {
		if initial {
			if err := s.initial(&listing{kind: q.kind, matcher: m, parts: []listPart{{
				shelf: shelf{q.cluster.member.Name(), q.GroupVersionResource}, form: s.form, objects: prefixOf(now, q.namespace),
			}}}, now.Version); err != nil {
				return err
			}
		}
		from := now
		now = nil // the watch must not keep the state that it began with
		return w.follow(ctx, from)
	})
}

// timeout is how long a watch lasts: clients of one moment do not all come back at
// one moment.
func timeout(opts *internalversion.ListOptions) time.Duration {
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		return time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	return watchLeast + rand.N(watchLeast)
}

// eventStream writes events to one client.
type eventStream struct {
	*pulse
	server *Server
	kind   schema.GroupVersionKind
	// builtin is the same, nil if it has no Go type.
	builtin *wire.Kind
	form    form
	// gzip compresses each event, or batch of them, on its own: with an end that lets
	// the client read it at once.
	gzip      bool
	bookmarks bool
	deadline  time.Time
	// rows, if there are any, are what the client gets, and described says that it
	// knows the columns.
	rows      *rows
	described bool
	// pending are events that are not written yet, buffer where they are: nil if there
	// are none, since most watches are idle most of the time.
	pending []byte
	buffer  *[]byte
}

func (q *request) openStream(opts *internalversion.ListOptions) (*eventStream, error) {
	if q.media.encoding == asYAML {
		return nil, notAcceptable(true)
	}
	s := &eventStream{server: q.server, kind: q.kind, builtin: q.builtin, form: q.form(""), bookmarks: opts.AllowWatchBookmarks}
	if q.media.shape == table {
		var err error
		if s.rows, err = q.rows(q.known.printer); err != nil {
			return nil, err
		}
	}
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		s.gzip = takesGzip(q.r)
	}
	contentType := mediaTypes[q.media.encoding]
	if q.media.encoding == asProtobuf {
		contentType += ";stream=watch"
	}
	q.w.Header().Set("Content-Type", contentType)
	s.pulse = q.server.pulses.begin(q.w)
	return s, nil
}

// run writes the header and then what follow writes, until that ends. A client that
// goes away is no error.
func (s *eventStream) run(follow func() error) error {
	defer s.end()
	if s.gzip {
		s.w.Header().Set("Content-Encoding", "gzip")
		s.w.Header().Add("Vary", "Accept-Encoding")
	}
	s.w.WriteHeader(http.StatusOK)
	if err := s.flush(); err != nil {
		return nil
	}
	err := follow()
	var client *clientError
	switch {
	case err == nil, errors.As(err, &client), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, fanout.ErrClosed):
	default:
		if err := s.fail(err); err != nil {
			return nil
		}
	}
	_ = s.send()
	return nil
}

// clientError is one of writing to a client.
type clientError struct{ error }

func (e *clientError) Unwrap() error { return e.error }

// fail tells the client why the watch ends.
func (s *eventStream) fail(cause error) error {
	status := statusOf(cause)
	body, _ := encodeStatus(status, media{encoding: s.form.encoding})
	var raw []byte
	if s.form.encoding == asProtobuf {
		message, err := status.Marshal()
		if err != nil {
			return err
		}
		raw = protoEvent(nil, wire.Error, schema.GroupVersionKind{Version: "v1", Kind: "Status"}, message)
	} else {
		raw = append(append([]byte(`{"type":"ERROR","object":`), body[:len(body)-1]...), "}\n"...)
	}
	return s.put(raw, false)
}

// put adds a frame to those that are to be written. Zipped says that it is a gzip
// stream of its own already.
func (s *eventStream) put(raw []byte, zipped bool) error {
	if s.gzip && !zipped {
		raw = deflate(raw).member()
	}
	if len(s.pending) == 0 && len(raw) >= gather {
		return s.write(raw)
	}
	if s.buffer == nil {
		s.buffer = buffers.Get().(*[]byte)
		s.pending = (*s.buffer)[:0]
	}
	s.pending = append(s.pending, raw...)
	if len(s.pending) >= gather {
		return s.drain()
	}
	return nil
}

func (s *eventStream) write(raw []byte) error {
	if _, err := s.Write(raw); err != nil {
		return &clientError{err}
	}
	return nil
}

// drain writes what is pending, and gives the buffer back.
func (s *eventStream) drain() error {
	if s.buffer == nil {
		return nil
	}
	err := s.write(s.pending)
	*s.buffer = s.pending
	keepBuffer(s.buffer)
	s.pending, s.buffer = nil, nil
	return err
}

// send writes what is pending, and sees to it that the client gets it.
func (s *eventStream) send() error {
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return &clientError{err}
	}
	return nil
}

// event writes an event about an object. If the object cannot be sent it returns an
// error, which ends the watch: without the event the client would be wrong for good.
func (s *eventStream) event(t wire.EventType, o *wire.Object, cluster string, v uint64) error {
	switch {
	case t == wire.Error: // see [matcher.events]
		_, err := s.server.values.Decode(o)
		return &unsentError{o, err}
	case s.rows != nil:
		return s.rowEvent(t, o, cluster, v)
	}
	f := s.form
	f.cluster = cluster
	raw, err := s.server.frames.get(frameKey{object: o, form: f, event: t, version: v, gzip: s.gzip})
	if err != nil {
		return err
	}
	return s.put(raw, s.gzip)
}

// rowEvent writes an event with a table of one row. Only the first says what the
// columns are.
func (s *eventStream) rowEvent(t wire.EventType, o *wire.Object, cluster string, v uint64) error {
	if v != 0 {
		o = o.With(wire.Patch{Version: v})
	}
	row, err := s.rows.row(o, cluster, time.Now())
	if err != nil {
		return err
	}
	return s.tableEvent(t, row, strconv.FormatUint(o.Version(), 10))
}

func (s *eventStream) tableEvent(t wire.EventType, row []byte, version string) error {
	var columns []metav1.TableColumnDefinition
	if !s.described {
		columns, s.described = s.rows.columns(), true
	}
	head, err := s.rows.head(&metav1.ListMeta{ResourceVersion: version}, columns)
	if err != nil {
		return err
	}
	raw := append([]byte(`{"type":"`+t.String()+`","object":`), head...)
	raw = append(append(raw, row...), "]}}\n"...)
	return s.put(raw, false)
}

// initial writes the state that there is, and the mark behind it.
func (s *eventStream) initial(l *listing, version uint64) error {
	if s.rows != nil {
		for p, o := range l.objects() {
			if l.matcher.err != nil {
				return l.matcher.err
			}
			if err := s.event(wire.Added, o, p.form.cluster, 0); err != nil {
				return err
			}
		}
	} else if err := s.initialBlocks(l); err != nil {
		return err
	}
	if s.bookmarks {
		if err := s.bookmark(version, true); err != nil {
			return err
		}
	}
	return s.send()
}

// initialBlocks writes the state from the blocks that all readers share.
func (s *eventStream) initialBlocks(l *listing) error {
	b := &body{pulse: s.pulse, blocks: s.server.blocks, started: true, zipping: s.gzip}
	begun := false
	var failed error
	for p, err := range l.items(s.server, true) {
		if failed = err; err != nil {
			break // what was written before must be ended all the same
		}
		if s.gzip && !begun {
			if err := s.write([]byte(gzipHead)); err != nil {
				return err
			}
		}
		begun = true
		if err := b.write(p); err != nil {
			return &clientError{err}
		}
	}
	if err := b.drain(); err != nil {
		return &clientError{err}
	}
	if s.gzip && begun {
		if err := s.write(append([]byte(flushed), b.sum.tail()...)); err != nil {
			return err
		}
	}
	return failed
}

// bookmark says how far the watch is.
func (s *eventStream) bookmark(version uint64, end bool) error {
	raw, err := s.bookmarkFrame(version, end)
	if err != nil {
		return err
	}
	return s.put(raw, false)
}

// events turns a change into the event that a client gets: an object may come to match
// and cease to. The type is 0 if the change does not concern the client, and [wire.Error]
// if that is not known because the object cannot be decoded.
func (m *matcher) events(c *store.Change[*wire.Object]) (t wire.EventType, o *wire.Object, v uint64) {
	was := c.Type != delta.Added && m.selects(c.Old, false)
	if m.err != nil {
		return wire.Error, c.Old, 0
	}
	is := c.Type != delta.Deleted && m.selects(c.New, false)
	switch {
	case m.err != nil:
		return wire.Error, c.New, 0
	case was && is:
		return wire.Modified, c.New, 0
	case is:
		return wire.Added, c.New, 0
	case was && c.Type == delta.Deleted:
		if c.Missed {
			v = c.Version
		}
		return wire.Deleted, c.New, v
	case was:
		// It is there, but not for this client: the last that it may see, at the
		// version at which it ceased to.
		return wire.Deleted, c.Old, c.Version
	}
	return 0, nil, 0
}
