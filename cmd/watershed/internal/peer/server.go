// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxConnections is how many connections the port for replicas has open. Further ones are closed.
const maxConnections = maxPeers * (maxNotes + 2)

// maxQuestion is how many bytes a question about versions may have.
const maxQuestion = 8 << 10

// server returns the server of the port for replicas.
func (e *Exchange) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+beatPath, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST "+notePath, e.receive)
	mux.HandleFunc("GET "+reportPath, func(w http.ResponseWriter, _ *http.Request) {
		report, err := e.opts.Report()
		answer(w, report, err)
	})
	mux.HandleFunc("POST "+versionsPath, func(w http.ResponseWriter, r *http.Request) {
		question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
		if err == nil {
			question, err = e.opts.Versions(r.Context(), question)
		}
		answer(w, question, err)
	})
	open := &connections{}
	return &http.Server{
		Handler: e.guard(mux), TLSConfig: e.serverTLS(e.own), ConnState: open.changed, MaxHeaderBytes: 8 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(e.opts.Logger.Handler(), slog.LevelDebug),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1 only
	}
}

// connections bounds the open connections: clients without a key in the list could hold them
// until their handshakes time out.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

// changed closes a new connection that is one too many.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= maxConnections {
			_ = conn.Close()
			return
		}
		if c.open == nil {
			c.open = map[net.Conn]bool{}
		}
		c.open[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// listed returns the replica in the list of the group that is at the other end of a connection.
func (e *Exchange) listed(state *tls.ConnectionState) (*Peer, error) {
	for _, p := range e.opts.Peers() {
		if p.Holder == e.opts.Holder || p.Key == e.opts.Key.Hash() {
			continue
		}
		if matches(&p, state) == nil {
			return &p, nil
		}
	}
	return nil, errStranger
}

// guard answers the requests of replicas that are still in the list, and records that they were
// heard.
func (e *Exchange) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := e.listed(r.TLS)
		if err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		e.mu.Lock()
		from := e.remotes[*p]
		e.mu.Unlock()
		switch {
		case from == nil:
			http.Error(w, "the replica has just joined the group", http.StatusServiceUnavailable)
			return
		case from.useless != nil:
			http.Error(w, from.useless.Error(), http.StatusForbidden)
			return
		case r.Header.Get(formatHeader) != strconv.Itoa(Format):
			http.Error(w, fmt.Sprintf("this replica has format %d", Format), http.StatusBadRequest)
			return
		}
		from.hear()
		select {
		case from.serving <- struct{}{}:
		default:
			e.refused.Add(1)
			answer(w, nil, ErrBusy)
			return
		}
		defer func() { <-from.serving }()
		next.ServeHTTP(w, r)
	})
}

// receive records a note.
func (e *Exchange) receive(w http.ResponseWriter, r *http.Request) {
	note, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(e.opts.MaxNote)))
	if err == nil {
		err = e.opts.Receive(note)
	}
	if err != nil {
		e.refused.Add(1)
		answer(w, nil, err)
		return
	}
	e.accepted.Add(1)
	w.WriteHeader(http.StatusNoContent)
}

// answer sends the answer to a request, or the status of an error.
func answer(w http.ResponseWriter, body []byte, err error) {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	case errors.Is(err, ErrBusy):
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case errors.As(err, &tooLarge):
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
