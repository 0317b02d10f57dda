// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

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
	// barePiece is about an object: what a server has at hand at a time. Pieces are
	// written through a buffer of bareBuffer.
	barePiece, bareBuffer = 8 << 10, 64 << 10
	// bareBacklog is how many frames may wait for a watcher.
	bareBacklog = 4096
)

// bareServer is what a server costs that only sends: net/http with TLS and nothing
// behind it. It answers every request with the bytes that the origin answered it with
// the first time, and every watch with the frames that it is given.
type bareServer struct {
	origin *server
	client *http.Client

	// mu guards what follows.
	mu       sync.Mutex
	answers  map[bareRequest]*bareAnswer
	watchers map[chan []byte]context.Context
}

// bareRequest is what makes one request different from another.
type bareRequest struct {
	uri  string
	form form
}

type bareAnswer struct {
	once sync.Once
	body []byte
	err  error
}

// startBare starts a bare server beside an origin. The caller closes the companion.
func startBare(ctx context.Context, bench string, origin *server) (*server, *companion, error) {
	c, err := startCompanion(ctx, bench, "bare", origin.access())
	if err != nil {
		return nil, nil, err
	}
	var at access
	if err := c.answers.Decode(&at); err != nil {
		c.close()
		return nil, nil, fmt.Errorf("bare server: %w", err)
	}
	s := at.server()
	s.pid = c.cmd.Process.Pid
	return s, c, nil
}

// sendFrame has a bare server send a frame to every watcher.
func (c *companion) sendFrame(frame []byte) error {
	if err := binary.Write(c.orders, binary.BigEndian, uint32(len(frame))); err != nil {
		return err
	}
	_, err := c.orders.Write(frame)
	return err
}

// beBare serves until there are no more frames.
func beBare(task []byte, in io.Reader, out io.Writer) error {
	var origin access
	if err := json.Unmarshal(task, &origin); err != nil {
		return err
	}
	b := &bareServer{origin: origin.server(), answers: map[bareRequest]*bareAnswer{}, watchers: map[chan []byte]context.Context{}}
	var err error
	if b.client, err = b.origin.client(); err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(b)
	s.EnableHTTP2 = true
	s.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := json.NewEncoder(out).Encode(access{Name: "bare net/http", Host: s.URL, CA: ca}); err != nil {
		return err
	}
	// Connections that are open do not matter: the end of the process closes them.
	return b.pass(bufio.NewReaderSize(in, bareBuffer))
}

// pass gives frames to the watchers, until there are no more.
func (b *bareServer) pass(in io.Reader) error {
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
		b.mu.Lock()
		for watcher, ctx := range b.watchers {
			select {
			case watcher <- frame:
			case <-ctx.Done():
			}
		}
		b.mu.Unlock()
	}
}

// ServeHTTP answers as the origin did, or with frames.
func (b *bareServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		b.watch(w, r)
		return
	}
	body, err := b.answer(bareRequest{r.URL.RequestURI(), form{r.Header.Get("Accept"), r.Header.Get("Accept-Encoding") == "gzip"}})
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

// answer asks the origin, once.
func (b *bareServer) answer(q bareRequest) ([]byte, error) {
	b.mu.Lock()
	a := b.answers[q]
	if a == nil {
		a = &bareAnswer{}
		b.answers[q] = a
	}
	b.mu.Unlock()
	a.once.Do(func() {
		var body io.ReadCloser
		if body, a.err = b.origin.ask(context.Background(), b.client, q.uri, q.form); a.err != nil {
			return
		}
		defer body.Close()
		a.body, a.err = io.ReadAll(body)
	})
	return a.body, a.err
}

// isGzip reports whether an answer was compressed: short ones are not.
func isGzip(body []byte) bool { return len(body) > 2 && body[0] == 0x1f && body[1] == 0x8b }

// watch writes frames as they come, and flushes when there is none.
func (b *bareServer) watch(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, bareBacklog)
	b.mu.Lock()
	b.watchers[frames] = r.Context()
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.watchers, frames)
		b.mu.Unlock()
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
