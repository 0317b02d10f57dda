// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed/internal/kubetest/authority"
)

// Server is a number of simulated clusters.
type Server struct {
	authority  []byte // PEM
	population *population
	catalogue  *catalogue
	clusters   []*Cluster
	life       life
}

// New starts the clusters and returns when they serve. The caller must close the server.
// After an error nothing is left running.
func New(opts *Options) (*Server, error) {
	o := opts.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{population: newPopulation(o), catalogue: newCatalogue(newResources(o))}
	if err := s.population.check(); err != nil {
		return nil, err
	}
	var serving tls.Certificate
	var err error
	if s.authority, serving, err = newAuthority(); err != nil {
		return nil, err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{serving},
		MinVersion:   tls.VersionTLS13,
		// Loopback has no small packets from which a first list would benefit.
		DynamicRecordSizingDisabled: true,
	}
	for i := range o.Clusters {
		c := newCluster(i, o, s.population, s.catalogue)
		if err := s.start(c, config); err != nil {
			s.Close()
			return nil, err
		}
		s.clusters = append(s.clusters, c)
	}
	return s, nil
}

// Cluster returns cluster i.
func (s *Server) Cluster(i int) *Cluster { return s.clusters[i] }

// Clusters returns the number of clusters.
func (s *Server) Clusters() int { return len(s.clusters) }

// Close ends all clusters, requests and connections, and waits for their end. It may be
// called more than once.
func (s *Server) Close() {
	s.life.end()
	for _, c := range s.clusters {
		_ = c.http.Close()
	}
	s.life.wait()
}

// Stats returns the counts of all clusters together.
func (s *Server) Stats() Stats {
	var sum Stats
	for _, c := range s.clusters {
		sum.add(c.Stats())
	}
	return sum
}

// maxStreams is how many requests a connection may have at once, as in the real server.
const maxStreams = 1000

// start listens on a cluster's own address and serves.
func (s *Server) start(c *Cluster, config *tls.Config) error {
	c.authority, c.life = s.authority, &s.life
	var err error
	if c.listener, err = listen(c.number); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name(), err)
	}
	c.http = &http.Server{
		Handler:           c,
		TLSConfig:         config.Clone(), // the server modifies it
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ConnState:         c.track,
		ReadHeaderTimeout: time.Minute,
		// Clients that disconnect in the middle of a response are not worth logging.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	s.life.run(func() { _ = c.http.ServeTLS(c.listener, "", "") })
	return nil
}

// listen listens on the loopback address with a number, on a free port. On systems that
// have only one such address, all clusters share it.
func listen(number int) (net.Listener, error) {
	own := net.IPv4(127, 77, byte(number/250), byte(1+number%250))
	l, err := net.Listen("tcp4", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		l, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	return l, err
}

// track records the connections, for Cut, and makes Close wait for them.
func (c *Cluster) track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if !c.life.enter() {
			_ = conn.Close()
			return
		}
		c.mu.Lock()
		c.conns[conn] = struct{}{}
		c.mu.Unlock()
	case http.StateClosed, http.StateHijacked:
		c.mu.Lock()
		_, known := c.conns[conn]
		delete(c.conns, conn)
		c.mu.Unlock()
		if known {
			c.life.leave()
		}
	}
}

// serverName is the name in the certificate that all clusters share.
const serverName = "kubernetes"

// newAuthority returns an authority that exists only in this process, and a certificate
// from it.
func newAuthority() (ca []byte, serving tls.Certificate, err error) {
	a, err := authority.New("simulated")
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("authority: %w", err)
	}
	der, key, err := a.Serving([]string{serverName})
	if err != nil {
		return nil, tls.Certificate{}, fmt.Errorf("authority: %w", err)
	}
	return a.PEM(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Stats counts the requests and bytes of a cluster, or of a server, since it began.
type Stats struct {
	Lists       int64 // LIST requests, one for each page
	Watches     int64 // WATCH requests
	OpenWatches int64 // watches that are open now
	Gets        int64 // GETs of one object
	Discoveries int64 // discovery documents
	Sent        int64 // bytes of bodies, after compression
}

type counters struct {
	lists, watches, open, gets, discoveries, sent atomic.Int64
}

// read returns the counts up to now.
func (n *counters) read() Stats {
	return Stats{
		Lists:       n.lists.Load(),
		Watches:     n.watches.Load(),
		OpenWatches: n.open.Load(),
		Gets:        n.gets.Load(),
		Discoveries: n.discoveries.Load(),
		Sent:        n.sent.Load(),
	}
}

// add adds other counts.
func (s *Stats) add(other Stats) {
	s.Lists += other.Lists
	s.Watches += other.Watches
	s.OpenWatches += other.OpenWatches
	s.Gets += other.Gets
	s.Discoveries += other.Discoveries
	s.Sent += other.Sent
}

// life is the time during which a server runs. It counts the goroutines that accept, serve
// connections and respond.
type life struct {
	owned sync.WaitGroup

	mu     sync.Mutex // guards closed, and owned against its end
	closed bool
}

// enter adds a goroutine that wait waits for. It returns false after end was called.
func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.owned.Add(1)
	}
	return !l.closed
}

// leave is called at the end of a goroutine for which enter returned true.
func (l *life) leave() { l.owned.Done() }

// run runs f in a goroutine that wait waits for.
func (l *life) run(f func()) { l.owned.Go(f) }

// end makes enter return false from now on.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// wait waits for the goroutines.
func (l *life) wait() { l.owned.Wait() }
