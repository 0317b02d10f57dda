// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
	"github.com/watershed-project/watershed/replica/internal/past"
	"github.com/watershed-project/watershed/replica/internal/read"
	"github.com/watershed-project/watershed/replica/internal/requestmetrics"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// Server answers requests from a fleet's copy. It is an [http.Handler]; all methods are
// safe for concurrent use.
type Server struct {
	fleet *fleet.Fleet
	opts  Options
	ready readiness
	all   *fleetAPI
	// reads answers gets, lists and watches of views.
	reads read.Reader
	// tracker has the responses that are being written.
	tracker respond.Tracker
	// past reads the past.
	past *past.Reader
	// written bounds the bytes that responses to passed-on writes hold.
	written *respond.Budget
	// notes connects writes with other replicas, nil if there are none.
	notes *passthrough.Notes
	// requests counts the requests.
	requests requestmetrics.Requests
	seals    *view.SealKey
	// audited is the number of the last request that was audited.
	audited atomic.Uint64
	// membership has the sets of members that callers see.
	membership audience.Membership

	// mu guards clusters.
	mu       sync.Mutex
	clusters map[*fleet.Member]*clusterAPI
}

// New returns a server for a fleet, whose options must have a History. A nil opts means the
// defaults. The caller runs [Server.Run] while it serves.
func New(f *fleet.Fleet, opts *Options) (*Server, error) {
	switch {
	case f == nil:
		return nil, errors.New("replica: no fleet")
	case !f.KeepsHistory():
		return nil, errors.New("replica: the fleet keeps no history, which watches and lists at a version need: " +
			"set History in fleet.Options")
	}
	s := &Server{fleet: f, opts: opts.withDefaults(), clusters: map[*fleet.Member]*clusterAPI{}}
	s.past, s.written = past.New(&s.tracker, s.opts.Logger), respond.NewBudget(passthrough.WrittenBytes)
	logger := s.opts.Logger
	s.reads = read.Reader{
		Blocks: encode.NewBlocks(s.opts.Blocks, logger), Frames: encode.NewFrames(s.opts.Frames, logger),
		Values: view.NewValues(s.opts.Decoded), Tracker: &s.tracker, Expired: &s.requests.Expired, Logger: logger,
		Guarded: s.opts.Authorize != nil || s.opts.Admit != nil,
	}
	if p := s.opts.Peers; p != nil && s.opts.PassThrough {
		s.notes = &passthrough.Notes{Send: p.Send, Received: respond.NewBudget(passthrough.ReceivedBytes)}
	}
	s.seals = view.NewSealKey()
	s.ready.fleet = f
	s.all = newFleetAPI(s)
	return s, nil
}

// ListenConfig returns a configuration for the listener of a [Server]. On connections of
// that listener, writes progress as a slow client reads, not in large steps. On systems
// other than Linux the configuration is equivalent to the zero value.
func ListenConfig() *net.ListenConfig { return respond.ListenConfig() }

// Run cuts off clients that do not read, and drops what belongs to clusters that have left,
// until ctx ends. Then it ends all WebSockets, which the HTTP server does not know, and waits
// for them.
func (s *Server) Run(ctx context.Context) error {
	defer s.tracker.Disconnect()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.tracker.Cut(s.opts.WriteTimeout)
			s.tidy()
			s.membership.Check(s.fleet.Members())
			s.all.pins.DropOld()
		}
	}
}

// SetCaches makes the caches of the server as large as a share of their sizes in [Options], at
// most 1. The program calls it when its memory becomes scarce. It is safe for concurrent use.
func (s *Server) SetCaches(share float64) {
	s.reads.Blocks.Resize(int64(share * float64(s.opts.Blocks)))
	s.reads.Frames.Resize(int(share * float64(s.opts.Frames)))
	s.reads.Values.Cache.Resize(int(share * float64(s.opts.Decoded)))
}

// tidy drops the APIs of clusters that have left, and forgets writes that the others have.
func (s *Server) tidy() {
	for _, c := range s.present() {
		if c.pass != nil {
			c.pass.ForgetWrites()
		}
	}
}

// present returns the APIs of the clusters that are in the fleet, and drops the others.
func (s *Server) present() []*clusterAPI {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*clusterAPI
	for m, c := range s.clusters {
		if s.fleet.Has(m) {
			all = append(all, c)
		} else {
			delete(s.clusters, m)
			if c.pass != nil {
				c.pass.Close()
			}
		}
	}
	return all
}

// cluster returns the API of a member.
func (s *Server) cluster(m *fleet.Member) *clusterAPI {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[m]
	if c == nil {
		c = newClusterAPI(s, m)
		s.clusters[m] = c
	}
	return c
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response := s.tracker.Begin(w)
	defer response.End()
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			s.opts.Logger.Error("request panicked", "path", r.URL.Path, "panic", fmt.Sprint(p))
			panic(http.ErrAbortHandler)
		}
	}()
	if r.ProtoMajor == 1 {
		response.Unlimit()
	}
	// The documents of a cluster must not become pages of this server in a browser.
	response.Header().Set("X-Content-Type-Options", "nosniff")
	s.serve(response, r)
	response.Limit(s.opts.WriteTimeout)
}

// serve parses a request, and answers it.
func (s *Server) serve(w *respond.Response, r *http.Request) {
	q := parse(r)
	s.resolve(q)
	if q.Member != nil {
		q.Passed = s.cluster(q.Member).passes(r, q)
	}
	if s.opts.Trace != nil {
		s.follow(w, r, q)
		return
	}
	s.answer(w, r, q)
}

// answer runs the hooks of a request, and routes it.
func (s *Server) answer(w *respond.Response, r *http.Request, q *Request) {
	defer s.begin(w, r, q)()
	if s.opts.Audit != nil {
		defer s.audit(w, r, q)()
	}
	if s.opts.Admit != nil {
		end := q.phase(PhaseAdmit)
		done, err := s.opts.Admit(r, q)
		end()
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		q.leave = sync.OnceFunc(done)
		defer q.leave()
	}
	if err := s.authorize(r, q); err != nil {
		s.refuse(w, r, err)
		return
	}
	defer q.phase(PhaseAnswer)()
	s.route(w, r, q)
}

// resolve sets the member that a request addresses. The hooks decide about that member, so
// it is looked up once.
func (s *Server) resolve(q *Request) {
	switch {
	case q.Fleet:
	case q.Cluster != "":
		q.Member, _ = s.fleet.Member(q.Cluster)
	case !s.isServerPath(q.Path):
		// Some clients use only the root of a server, kubectl get --raw among them. If there
		// is one cluster, they mean that one.
		if members := s.fleet.Members(); len(members) == 1 {
			q.Cluster, q.Member = members[0].Name(), members[0]
		}
	}
}

// isServerPath reports whether a path belongs to the server itself.
func (s *Server) isServerPath(path string) bool {
	if s.opts.Pages[path] != nil {
		return true
	}
	root, _ := cutRoot(path)
	switch root {
	case "clusters", "healthz", "livez", "readyz":
		return true
	}
	return false
}

// noMember returns the error for a name that no member had when the request was resolved. The
// cluster may have joined since: then the client tries again.
func (s *Server) noMember(name string) error {
	if _, joined := s.fleet.Member(name); joined {
		return status.RetrySoon(fmt.Sprintf("the cluster %q has just joined", name))
	}
	return noCluster(name)
}

// noCluster returns the 404 for a name that no cluster has.
func noCluster(name string) error {
	return status.New(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no cluster %q", name))
}

// route answers a request by what it addresses.
func (s *Server) route(w http.ResponseWriter, r *http.Request, q *Request) {
	switch {
	case q.Fleet:
		s.serveAPI(&seenFleet{s.all, s.visibleTo(q)}, w, r, q)
		return
	case q.Cluster != "":
		switch {
		case q.Member != nil:
			s.cluster(q.Member).serve(w, r, q)
		case !s.fleet.Known():
			respond.Error(w, r, status.RetrySoon(unreported(s.fleet)))
		default:
			respond.Error(w, r, s.noMember(q.Cluster))
		}
		return
	}
	if page := s.opts.Pages[q.Path]; page != nil {
		page.ServeHTTP(w, r)
		return
	}
	root, rest := cutRoot(q.Path)
	switch {
	case root == "clusters" && rest == "":
		s.serveClusters(w, r, s.visibleTo(q))
	case root == "clusters":
		respond.Error(w, r, noCluster(""))
	case root == "healthz", root == "livez":
		respond.Text(w, http.StatusOK, "ok")
	case root == "readyz":
		s.ready.serve(w, r, s.visibleTo(q))
	default:
		respond.Error(w, r, status.NoPath())
	}
}
