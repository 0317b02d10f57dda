// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/replica/internal/audience"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
	"github.com/watershed-project/watershed/replica/internal/view"
)

// Server answers requests from a fleet's copy. It is an [http.Handler]; all methods are
// safe for concurrent use.
type Server struct {
	shared
	fleet *fleet.Fleet
	opts  Options
	ready readiness
	all   *fleetAPI
	// requests counts the requests that were audited.
	requests atomic.Uint64
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
		return nil, errors.New("replica: the fleet keeps no history, which watches and lists at a version need: set History in fleet.Options")
	}
	s := &Server{fleet: f, opts: opts.withDefaults(), clusters: map[*fleet.Member]*clusterAPI{}}
	s.logger = s.opts.Logger
	s.owned = s.opts.Own
	s.deliveries = s.opts.Deliveries
	s.shared.authorize = s.opts.Authorize
	s.past, s.written = respond.NewBudget(pastObjects), respond.NewBudget(passthrough.WrittenBytes)
	s.guarded = s.opts.Authorize != nil || s.opts.Admit != nil
	s.blocks = encode.NewBlocks(s.opts.Blocks, s.logger)
	s.frames = encode.NewFrames(s.opts.Frames, s.logger)
	s.seals = view.NewSealKey()
	s.values = view.NewValues(s.opts.Decoded)
	s.ready.fleet = f
	s.all = newFleetAPI(&s.shared, f, &s.ready, &s.membership, s.cluster)
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
	s.blocks.Resize(int64(share * float64(s.opts.Blocks)))
	s.frames.Resize(int(share * float64(s.opts.Frames)))
	s.values.Recent.Resize(int(share * float64(s.opts.Decoded)))
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
		c = newClusterAPI(&s.shared, m, &s.opts)
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
			s.logger.Error("request panicked", "path", r.URL.Path, "panic", fmt.Sprint(p))
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

// begin prepares to count a request, and returns the function that counts it at its end.
func (s *Server) begin(w *respond.Response, r *http.Request, q *Request) (end func()) {
	a := &q.attributes
	verb, began := verbLabel(r, a), time.Now()
	w.Classify(byteClass(verb))
	at := &s.all.traffic
	if q.Member != nil {
		at = &s.cluster(q.Member).traffic
	}
	if verb == "WATCH" {
		at.watches.Add(1)
	}
	return func() {
		if verb == "WATCH" {
			at.watches.Add(-1)
		}
		code, origin := w.Status(), w.Header().Get("Watershed-Source") != ""
		if origin {
			at.passed.Add(1)
		} else if a.IsResource && code < http.StatusMultipleChoices {
			at.saved.add(verb, s.concerned(q))
		}
		scope := scopeLabel(a)
		s.tally.count(s.labels(q, verb, scope, code))
		if verb != "WATCH" && !q.staysOpen(r) {
			s.tally.duration(durationLabels{verb, scope}).Observe(time.Since(began))
		}
	}
}

// concerned returns how many clusters a request would have to be sent to without a copy.
func (s *Server) concerned(q *Request) int {
	if q.Fleet {
		return s.fleet.Len()
	}
	return 1
}

// labels returns the labels of a request. Only names that a discovery has become labels: any
// other may be made up by a client, also if a cluster has answered with success.
func (s *Server) labels(q *Request, verb, scope string, code int) RequestLabels {
	a := &q.attributes
	l := RequestLabels{Verb: verb, Scope: scope, Code: code}
	if !a.IsResource {
		return l
	}
	r := resourceLabels{a.Group, a.Version, a.Resource, a.Subresource}
	known := s.tally.known(r)
	if !known && s.lists(q) {
		known = s.tally.admit(r)
	}
	if !known {
		l.Resource = otherResource
		return l
	}
	l.Group, l.Version, l.Resource, l.Subresource = r.group, r.version, r.resource, r.subresource
	return l
}

// lists reports whether the program itself, or the discovery of a cluster that a request
// concerns, has the resource of the request.
func (s *Server) lists(q *Request) bool {
	a := &q.attributes
	resource := schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}
	if slices.ContainsFunc(s.owned, func(o OwnResource) bool { return o.GroupVersionResource == resource && a.Subresource == "" }) {
		return true
	}
	members := []*fleet.Member{q.Member}
	switch {
	case q.Fleet:
		members = s.fleet.Members()
	case q.Member == nil:
		return false
	}
	return slices.ContainsFunc(members, func(m *fleet.Member) bool {
		if a.Subresource == "" {
			return m.Lists(resource)
		}
		return m.ListsSubresource(resource, a.Subresource)
	})
}

// refuse writes the error of a hook. A refusal is that of kube-apiserver, without a warning.
// A cluster that cannot decide is one, because client-go drops the message of a failed
// discovery request.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if s.opts.Authorize == nil || status.Of(err).Code == http.StatusServiceUnavailable {
		respond.ErrorWithWarning(w, r, err)
		return
	}
	respond.Error(w, r, err)
}

// audit calls the hook when a watch begins, and returns the function to defer that calls it
// at the end of a request.
func (s *Server) audit(w *respond.Response, r *http.Request, q *Request) func() {
	outcome := Outcome{Number: s.requests.Add(1), Began: time.Now()}
	call := func() {
		outcome.Passed, outcome.Status, outcome.Reason, outcome.Took = q.Passed, w.Status(), w.Reason(), time.Since(outcome.Began)
		s.opts.Audit(r, q, outcome)
	}
	if q.attributes.Verb == "watch" || q.Passed && q.staysOpen(r) {
		outcome.Started = true
		w.OnBegin(call)
	}
	return func() {
		p := recover()
		err, _ := p.(error)
		outcome.Started, outcome.Panicked = false, p != nil && !errors.Is(err, http.ErrAbortHandler)
		call()
		if p != nil {
			panic(p)
		}
	}
}

// visibleTo returns what a caller sees of the fleet. The hook is asked once for each member.
func (s *Server) visibleTo(a *Access) *audience.Visible {
	if a == nil {
		return audience.Of(s.fleet.Members(), nil, 0, &s.membership)
	}
	return audience.Of(s.fleet.Members(), a.Sees, a.Unavailable, &s.membership)
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

// authorize records what the caller of a request may read. A watch of several members ends
// when the members of the fleet change after the hook was called: only the hook knows whether
// the caller sees the new ones.
func (s *Server) authorize(r *http.Request, q *Request) (err error) {
	if s.opts.Authorize == nil {
		if q.Passed {
			return nil
		}
		return checkImpersonation(r)
	}
	defer q.phase(PhaseAuthorize)()
	changed := s.membership.Changed()
	if q.access, err = s.opts.Authorize(r, q); err != nil || q.access == nil {
		return err
	}
	if q.access.Ends != nil {
		q.ends = append(q.ends, q.access.Ends)
	}
	if q.Fleet && q.access.Sees != nil {
		q.ends = append(q.ends, changed)
	}
	return nil
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
		serveAPI(&seenFleet{s.all, s.visibleTo(q.access)}, w, r, q)
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
		s.serveClusters(w, r, s.visibleTo(q.access))
	case root == "clusters":
		respond.Error(w, r, noCluster(""))
	case root == "healthz", root == "livez":
		respond.Text(w, http.StatusOK, "ok")
	case root == "readyz":
		s.ready.serve(w, r, s.visibleTo(q.access))
	default:
		respond.Error(w, r, status.NoPath())
	}
}

// follow answers a request with a trace.
func (s *Server) follow(w *respond.Response, r *http.Request, q *Request) {
	if q.trace = s.opts.Trace(r, q); q.trace == nil {
		s.answer(w, r, q)
		return
	}
	aborted := true
	defer func() {
		q.trace.End(Ending{Status: w.Status(), Bytes: w.Written(), Passed: w.Header().Get("Watershed-Source") != "", Aborted: aborted})
	}()
	s.answer(w, r, q)
	aborted = false
}
