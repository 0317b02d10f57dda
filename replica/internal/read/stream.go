// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package read

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// gather is how many bytes of events are written at once.
const gather = 64 << 10

// eventStream writes events to one client. Most are idle most of the time, so it has no
// buffer unless there is something to write.
type eventStream struct {
	*Reader
	*respond.Response
	kind schema.GroupVersionKind
	// builtin is the kind if it has a Go type, and nil otherwise.
	builtin *wire.Kind
	form    encode.Form
	// gzip compresses each event, or batch of events, into a gzip stream of its own, whose
	// end lets the client read it at once.
	gzip bool
	// handshake is set if the client wants a WebSocket, and sends each event as a message.
	handshake *respond.Handshake
	bookmarks bool
	deadline  time.Time
	// ended returns an error if the client has gone away, or must not receive more events.
	ended func() error
	// rows are set if the client receives tables, and described once it has received the
	// columns.
	rows      *rows
	described bool
	// pending are events that are not written yet, in buffer, which is nil if there are
	// none.
	pending []byte
	buffer  *[]byte
	// traced are the changes that are followed, nil if none are.
	traced *pendingDeliveries
}

func (c *call) openStream(opts *internalversion.ListOptions) (*eventStream, error) {
	if c.media.Encoding == encode.YAML {
		return nil, respond.NotAcceptable(true)
	}
	s := &eventStream{
		Reader: c.Reader, kind: c.kind, builtin: c.builtin, form: c.form(""), bookmarks: opts.AllowWatchBookmarks,
	}
	if c.Delivery != nil {
		s.traced = &pendingDeliveries{delivery: c.Delivery, resource: c.GroupResource(), cluster: c.Cluster}
	}
	if c.media.Shape == respond.Table {
		var err error
		if s.rows, err = c.newRows(c.Kind.Printer); err != nil {
			return nil, err
		}
	}
	if respond.WantsSocket(c.r) {
		handshake, err := respond.CheckHandshake(c.r, c.w.Header(), c.Guarded, c.Ambient)
		if err != nil {
			return nil, err
		}
		s.handshake = &handshake
	} else if opts.SendInitialEvents != nil && *opts.SendInitialEvents && opts.AllowWatchBookmarks {
		s.gzip = respond.AcceptsGzip(c.r)
	}
	contentType := c.media.Encoding.MediaType()
	if c.media.Encoding == encode.Protobuf {
		contentType += ";stream=watch"
	}
	c.w.Header().Set("Content-Type", contentType)
	s.Response = c.Tracker.Begin(c.w)
	return s, nil
}

// run writes the header and then the events that follow writes, until ctx ends. If follow
// returns an error, the client receives it as the last event. A client that goes away is not
// an error. If run returns an error, nothing has been written.
func (s *eventStream) run(r *http.Request, follow func(ctx context.Context) error) error {
	defer s.End()
	ctx := r.Context()
	if s.handshake != nil {
		socket, err := respond.Upgrade(s.Response, r, *s.handshake)
		if err != nil {
			return err
		}
		defer socket.Close()
		ctx = socket.Context()
	} else if err := s.begin(); err != nil {
		return nil
	}
	err := follow(ctx)
	var client *clientError
	switch {
	case err == nil, s.ended() != nil, errors.As(err, &client), errors.Is(err, context.Canceled),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, fanout.ErrClosed):
	default:
		if errors.Is(err, fanout.ErrExpired) || status.Of(err).Code == http.StatusGone {
			s.Expired.Add(1)
		}
		if err := s.fail(err); err != nil {
			return nil
		}
	}
	_ = s.send()
	return nil
}

// begin writes the header.
func (s *eventStream) begin() error {
	if s.gzip {
		s.Header().Set("Content-Encoding", "gzip")
		s.Header().Add("Vary", "Accept-Encoding")
	}
	s.WriteHeader(http.StatusOK)
	return s.FlushError()
}

// clientError is an error of writing to the client.
type clientError struct{ error }

func (e *clientError) Unwrap() error { return e.error }

// fail sends the reason why the watch ends.
func (s *eventStream) fail(cause error) error {
	reason := status.Of(cause)
	if s.form.Encoding == encode.Protobuf {
		message, err := reason.Marshal()
		if err != nil {
			return err
		}
		kind := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
		return s.put(encode.ProtobufEvent(nil, stream.Error, kind, message), false)
	}
	body, _ := respond.EncodeStatus(reason, respond.Media{})
	return s.put(encode.JSONEvent(stream.Error, body[:len(body)-1]), false)
}

// put adds a frame to the pending ones. Zipped means that it is a gzip stream of its own
// already.
func (s *eventStream) put(raw []byte, zipped bool) error {
	if s.gzip && !zipped {
		raw = encode.Deflate(raw).Member()
	}
	if len(s.pending) == 0 && len(raw) >= gather && s.handshake == nil {
		return s.write(raw)
	}
	if s.buffer == nil {
		s.buffer = encode.GetBuffer()
		s.pending = (*s.buffer)[:0]
	}
	if s.handshake != nil {
		raw = s.message(raw)
	}
	s.pending = append(s.pending, raw...)
	if len(s.pending) >= gather {
		return s.drain()
	}
	return nil
}

// message begins the message of an event, and returns its bytes. As in kube-apiserver, JSON is
// a text with a newline at its end, and protobuf has no length, since a message has one.
func (s *eventStream) message(event []byte) []byte {
	kind := respond.TextMessage
	if s.form.Encoding == encode.Protobuf {
		kind, event = respond.BinaryMessage, event[encode.EventLength:]
	}
	s.pending = respond.AppendFrame(s.pending, kind, len(event))
	return event
}

func (s *eventStream) write(raw []byte) error {
	if _, err := s.Write(raw); err != nil {
		return &clientError{err}
	}
	return nil
}

// drain writes the pending events, and returns the buffer.
func (s *eventStream) drain() error {
	if s.buffer == nil {
		return nil
	}
	err := s.write(s.pending)
	*s.buffer = s.pending
	encode.PutBuffer(s.buffer)
	s.pending, s.buffer = nil, nil
	return err
}

// send writes the pending events, and flushes them to the client.
func (s *eventStream) send() error {
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.FlushError(); err != nil {
		return &clientError{err}
	}
	if s.traced != nil {
		s.traced.sent()
	}
	return nil
}

// event adds an event. If its object cannot be sent it returns an error, which ends the
// watch: without the event, the state of the client would be wrong for good.
func (s *eventStream) event(e view.Event) error {
	if err := s.ended(); err != nil {
		return err
	}
	if e.Type == stream.Error { // it is not known whether the client wants the object
		_, err := s.Values.Decode(e.Object)
		return &encode.UnsentError{Object: e.Object, Err: err}
	}
	if s.traced != nil {
		s.traced.add(e)
	}
	if s.rows != nil {
		return s.rowEvent(e)
	}
	f := s.form
	f.Cluster = e.Cluster
	key := encode.FrameKey{Object: e.Object, Form: f, Event: e.Type, Version: e.Version, Gzip: s.gzip}
	raw, err := s.Frames.Get(key)
	if err != nil {
		return err
	}
	return s.put(raw, s.gzip)
}

// rowEvent adds an event with a table of one row.
func (s *eventStream) rowEvent(e view.Event) error {
	o := e.Object
	if e.Version != 0 {
		o = o.With(wire.Patch{Version: e.Version})
	}
	row, err := s.rows.row(o, e.Cluster, time.Now())
	if err != nil {
		return err
	}
	return s.tableEvent(e.Type, row, strconv.FormatUint(o.Version(), 10))
}

// tableEvent adds an event with a row. Only the first one has the columns.
func (s *eventStream) tableEvent(t stream.EventType, row []byte, version string) error {
	var columns []metav1.TableColumnDefinition
	if !s.described {
		columns, s.described = s.rows.columns(), true
	}
	head, err := s.rows.head(&metav1.ListMeta{ResourceVersion: version}, columns)
	if err != nil {
		return err
	}
	return s.put(encode.JSONEvent(t, append(append(head, row...), "]}"...)), false)
}

// initial writes the initial events, and the bookmark behind them.
func (s *eventStream) initial(c *call, p *view.Page, version uint64) error {
	if s.rows != nil {
		for r, o := range p.Objects() {
			if err := p.Matcher.Err(); err != nil {
				return err
			}
			added := view.Event{Type: stream.Added, Object: o, Cluster: c.form(r.Cluster).Cluster}
			if err := s.event(added); err != nil {
				return err
			}
		}
	} else if err := s.initialBlocks(c, p); err != nil {
		return err
	}
	if s.bookmarks {
		if err := s.bookmark(version, true); err != nil {
			return err
		}
	}
	return s.send()
}

// initialMessages writes the initial events to a WebSocket.
func (s *eventStream) initialMessages(c *call, p *view.Page) error {
	for part, err := range c.items(p, true) {
		if err != nil {
			return err
		}
		if err := part.Items(func(event []byte) error { return s.put(event, false) }); err != nil {
			return err
		}
	}
	return nil
}

// initialBlocks writes the initial events from the blocks that all readers share.
func (s *eventStream) initialBlocks(c *call, p *view.Page) error {
	if s.handshake != nil {
		return s.initialMessages(c, p)
	}
	b := respond.NewStreamBody(s.Response, s.gzip)
	begun := false
	var failed error
	for part, err := range c.items(p, true) {
		if err != nil {
			failed = err
			break // the gzip stream must be ended all the same
		}
		if s.gzip && !begun {
			if err := s.write([]byte(encode.GzipHead)); err != nil {
				return err
			}
		}
		begun = true
		if err := b.Add(part); err != nil {
			return &clientError{err}
		}
	}
	if err := b.Drain(); err != nil {
		return &clientError{err}
	}
	if s.gzip && begun {
		if err := s.write(append([]byte(encode.GzipFlush), b.Tail()...)); err != nil {
			return err
		}
	}
	return failed
}

// bookmark adds a bookmark. End marks the end of the initial events.
func (s *eventStream) bookmark(version uint64, end bool) error {
	meta := encode.BookmarkMeta(version, end)
	if s.rows != nil {
		row, err := s.rows.bookmark(encode.Empty(s.kind, s.builtin, meta), meta)
		if err != nil {
			return err
		}
		return s.tableEvent(stream.Bookmark, row, meta.ResourceVersion)
	}
	raw, err := encode.Bookmark(s.form, s.kind, s.builtin, meta)
	if err != nil {
		return err
	}
	return s.put(raw, false)
}
