// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
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
	// bareBacklog is how many frames may wait for a watcher.
	bareBacklog = 4096
)

// Bare is a server that only sends: net/http with TLS and nothing behind it. No Go
// server can cost less. It answers every request with the bytes of the origin's first
// response to it, and every watch with the frames of SendFrame.
type Bare struct {
	Server
	child *Child
}

// StartBare starts a bare server for an origin. The caller closes it.
func StartBare(ctx context.Context, origin *Server) (*Bare, error) {
	c, err := StartChild(ctx, BareRole, origin.Address())
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

// SendFrame sends a frame to every watcher.
func (b *Bare) SendFrame(frame []byte) error {
	if err := binary.Write(b.child, binary.BigEndian, uint32(len(frame))); err != nil {
		return err
	}
	_, err := b.child.Write(frame)
	return err
}

// Close ends the server.
func (b *Bare) Close() { b.child.Close() }

// ServeBare is the [Role] of a bare server. It serves until its input ends.
func ServeBare(task []byte, in io.Reader, out io.Writer) error {
	var origin Address
	if err := json.Unmarshal(task, &origin); err != nil {
		return err
	}
	h := &bareHandler{
		origin:    origin.Server(),
		responses: map[bareRequest]func() ([]byte, error){},
		watchers:  map[chan []byte]context.Context{},
	}
	var err error
	if h.client, err = h.origin.Client(); err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := json.NewEncoder(out).Encode(Address{Name: "bare net/http", Host: s.URL, CA: ca}); err != nil {
		return err
	}
	// Open connections are closed by the end of the process.
	return h.distribute(bufio.NewReaderSize(in, bareBuffer))
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

// distribute reads frames and passes them to the watchers, until the input ends.
func (h *bareHandler) distribute(in io.Reader) error {
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		frame := make([]byte, length)
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		h.mu.Lock()
		for watcher, ctx := range h.watchers {
			select {
			case watcher <- frame:
			case <-ctx.Done():
			}
		}
		h.mu.Unlock()
	}
}

// ServeHTTP answers with the origin's response, or with frames.
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

// watch writes frames as they come, and flushes when none is waiting.
func (h *bareHandler) watch(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, bareBacklog)
	h.mu.Lock()
	h.watchers[frames] = r.Context()
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.watchers, frames)
		h.mu.Unlock()
	}()
	w.Header().Set("Content-Type", r.Header.Get("Accept"))
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	for {
		if len(frames) == 0 && control.Flush() != nil {
			return
		}
		select {
		case frame := <-frames:
			if _, err := w.Write(frame); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
