// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

const (
	// BareRole is the name under which [ServeBare] must be among the roles of the command.
	BareRole = "bare"
	// barePiece is how many bytes the server writes at a time: about one object.
	barePiece = 8 << 10
	// bareBuffer is the size of the buffer for pieces, in bytes.
	bareBuffer = 64 << 10
	// bareBacklog is how many events may wait for a watcher.
	bareBacklog = 4096
)

// Bare is a server that only sends: net/http with TLS and nothing behind it. No Go
// server can cost less. It answers every request with the bytes of the origin's first
// response to it. It watches the pods of its source, and sends the events as they are to
// every client that watches.
type Bare struct {
	Server
	child *Child
}

// bareTask is the task of a bare server.
type bareTask struct {
	Origin, Source Address
}

// StartBare starts a bare server with the responses of origin and the events of source.
// It returns when the bare server watches. The caller closes it.
func StartBare(ctx context.Context, origin, source *Server) (*Bare, error) {
	c, err := StartChild(ctx, BareRole, bareTask{Origin: origin.Address(), Source: source.Address()})
	if err != nil {
		return nil, err
	}
	var at Address
	if err := c.Answer(&at); err != nil {
		c.Close()
		return nil, fmt.Errorf("bare server: %w", err)
	}
	b := &Bare{Server: *at.Server(), child: c}
	b.PID = c.PID()
	return b, nil
}

// Close ends the server.
func (b *Bare) Close() { b.child.Close() }

// ServeBare is the [Role] of a bare server. It serves until its input ends.
func ServeBare(task []byte, in io.Reader, out io.Writer) error {
	var t bareTask
	if err := json.Unmarshal(task, &t); err != nil {
		return err
	}
	h := &bareHandler{
		origin:    t.Origin.Server(),
		responses: map[bareRequest]func() ([]byte, error){},
		watchers:  map[chan []byte]context.Context{},
	}
	var err error
	if h.client, err = h.origin.Client(); err != nil {
		return err
	}
	events, err := watchPods(context.Background(), t.Source.Server())
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := json.NewEncoder(out).Encode(Address{Name: "bare net/http", Host: s.URL, CA: ca}); err != nil {
		return err
	}
	// The end of the process closes open connections, and ends the goroutine that reads its input.
	ended := make(chan error, 2)
	go func() { ended <- h.distribute(bufio.NewReaderSize(events, bareBuffer)) }()
	go func() {
		_, err := io.Copy(io.Discard, in)
		ended <- err
	}()
	return <-ended
}

// watchPods opens a watch of all pods, from their newest version on.
func watchPods(ctx context.Context, s *Server) (io.ReadCloser, error) {
	version, err := newestVersion(ctx, s)
	if err != nil {
		return nil, err
	}
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	path := "/api/v1/pods?watch=true&timeoutSeconds=36000&resourceVersion=" + version
	return s.Get(ctx, client, path, Format{Accept: JSON})
}

// bareHandler keeps every response of the origin in memory.
type bareHandler struct {
	origin *Server
	client *http.Client

	// mu guards responses and watchers.
	mu sync.Mutex
	// responses has functions that request a response once, and return it.
	responses map[bareRequest]func() ([]byte, error)
	watchers  map[chan []byte]context.Context
}

// bareRequest identifies a response.
type bareRequest struct {
	uri    string
	format Format
}

// distribute reads events, a line each, and passes them to the watchers. It returns when
// the watch of the source ends.
func (h *bareHandler) distribute(events *bufio.Reader) error {
	for {
		event, err := events.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("watch of the source: %w", err)
		}
		h.mu.Lock()
		for watcher, ctx := range h.watchers {
			select {
			case watcher <- event:
			case <-ctx.Done():
			}
		}
		h.mu.Unlock()
	}
}

// ServeHTTP answers with the origin's response, or with events.
func (h *bareHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		h.watch(w, r)
		return
	}
	body, err := h.response(bareRequest{
		r.URL.RequestURI(),
		Format{r.Header.Get("Accept"), r.Header.Get("Accept-Encoding") == "gzip"},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", r.Header.Get("Accept"))
	if isGzip(body) {
		w.Header().Set("Content-Encoding", "gzip")
	}
	pieces := bufio.NewWriterSize(w, bareBuffer)
	for len(body) > 0 {
		n := min(len(body), barePiece)
		if _, err := pieces.Write(body[:n]); err != nil {
			return // the client has gone
		}
		body = body[n:]
	}
	_ = pieces.Flush()
}

// response returns the origin's response, which it requests once.
func (h *bareHandler) response(q bareRequest) ([]byte, error) {
	h.mu.Lock()
	response := h.responses[q]
	if response == nil {
		response = sync.OnceValues(func() ([]byte, error) { return h.fetch(q) })
		h.responses[q] = response
	}
	h.mu.Unlock()
	return response()
}

// fetch requests a response from the origin.
func (h *bareHandler) fetch(q bareRequest) ([]byte, error) {
	body, err := h.origin.Get(context.Background(), h.client, q.uri, q.format)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}

// watch writes events as they come, and flushes when none is waiting.
func (h *bareHandler) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan []byte, bareBacklog)
	h.mu.Lock()
	h.watchers[events] = r.Context()
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.watchers, events)
		h.mu.Unlock()
	}()
	w.Header().Set("Content-Type", r.Header.Get("Accept"))
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for {
		if len(events) == 0 && control.Flush() != nil {
			return
		}
		select {
		case event := <-events:
			if _, err := w.Write(event); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
