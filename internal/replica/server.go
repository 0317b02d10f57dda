// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// Options tune a [Server]. The zero value, and nil, are the defaults.
type Options struct {
	// Blocks is how many bytes of lists are kept for the next reader, compressed.
	// Default 256 MiB.
	Blocks int64
	// Frames is how many bytes of events are kept for other watchers, with the objects
	// that they are of. Default 64 MiB.
	Frames int
	// Decoded is about how many bytes of values are kept that field selectors and
	// tables looked at. Default 64 MiB.
	Decoded int
	// Patience is how long a client may make no progress in reading an answer before it is
	// cut off. Default 30 s.
	Patience time.Duration
	// Origin is how long a cluster may take to begin its answer to a read that is passed
	// on. Default 1 minute, which is the API server's own limit.
	Origin time.Duration
	// Logger is for all of it. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Blocks <= 0 {
		opts.Blocks = 256 << 20
	}
	if opts.Frames <= 0 {
		opts.Frames = 64 << 20
	}
	if opts.Decoded <= 0 {
		opts.Decoded = 64 << 20
	}
	if opts.Patience <= 0 {
		opts.Patience = 30 * time.Second
	}
	if opts.Origin <= 0 {
		opts.Origin = time.Minute
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// Server answers requests from a fleet's copy. It is an [http.Handler]; all methods
// are safe for concurrent use.
type Server struct {
	fleet  *fleet.Fleet
	opts   Options
	blocks *blocks
	frames *frames
	// values are objects as Go values, shared by those who look at fields.
	values *wire.Sharer[runtime.Object]
	pulses pulses
	clock  clock

	// mu guards what follows: what is known of each member besides its objects.
	mu       sync.Mutex
	clusters map[*fleet.Member]*cluster
	all      *everything
	// ready says that readiness was reached once: see serveReady.
	ready atomic.Bool
}

// New serves a fleet, whose options must have a History. A nil opts means the
// defaults.
func New(f *fleet.Fleet, opts *Options) (*Server, error) {
	if f == nil {
		return nil, errors.New("replica: no fleet")
	}
	s := &Server{fleet: f, opts: opts.withDefaults(), clusters: map[*fleet.Member]*cluster{}}
	s.blocks = newBlocks(s.opts.Blocks, s.opts.Logger)
	s.frames = newFrames(s.opts.Frames, s.opts.Logger)
	s.values = &wire.Sharer[runtime.Object]{Make: decoded, Recent: wire.NewRecent(s.opts.Decoded)}
	s.all = newEverything(s)
	return s, nil
}

// Run cuts off clients that do not read, and forgets clusters that have left, until
// ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.pulses.cut(s.opts.Patience)
			s.forget()
			s.all.pins.tidy()
		}
	}
}

// forget drops what is known of clusters that have left.
func (s *Server) forget() {
	there := map[*fleet.Member]bool{}
	for _, m := range s.fleet.Members() {
		there[m] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.clusters {
		if !there[m] {
			delete(s.clusters, m)
		}
	}
}

// cluster is what is known of a member.
func (s *Server) cluster(m *fleet.Member) *cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[m]
	if c == nil {
		c = newCluster(s, m)
		s.clusters[m] = c
	}
	return c
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s.pulses.begin(w)
	defer answer.end()
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
		answer.unlimit()
	}
	// What a cluster sends must not become a page of this server in a browser.
	answer.Header().Set("X-Content-Type-Options", "nosniff")
	s.route(answer, r)
	answer.limit(s.opts.Patience)
}

// route answers a request by its path.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if err := impersonation(r); err != nil {
		writeDiscoveryError(w, r, err)
		return
	}
	root, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case root == "clusters" && rest == "":
		s.serveClusters(w)
	case root == "clusters":
		name, path, _ := strings.Cut(rest, "/")
		m, ok := s.fleet.Member(name)
		switch {
		case !ok && !s.fleet.Known():
			writeError(w, r, unknown("the clusters are not known yet"))
			return
		case !ok:
			writeError(w, r, failure(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no cluster %q", name)))
			return
		}
		s.cluster(m).serve(w, r, "/"+path)
	case root == "fleet":
		s.all.serve(w, r, "/"+rest)
	case root == "healthz", root == "livez":
		writeText(w, http.StatusOK, "ok")
	case root == "readyz":
		s.serveReady(w, r)
	default:
		// Some clients know no path but the server's own, kubectl get --raw among
		// them: where there is one cluster they mean that one.
		if members := s.fleet.Members(); len(members) == 1 {
			s.cluster(members[0]).serve(w, r, r.URL.Path)
			return
		}
		writeError(w, r, noPath())
	}
}

// impersonation refuses a request that asks for the rights of somebody else, nil if it does
// not. Without access control it would be answered with the replica's own.
func impersonation(r *http.Request) error {
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return failure(http.StatusForbidden, metav1.StatusReasonForbidden,
				"impersonation is forbidden: this replica reads with its own rights and cannot apply those of another user; ask the cluster's API server, or leave out --as, --as-group and --as-uid ("+name+")")
		}
	}
	return nil
}

// serveClusters tells which clusters there are, and how they are.
func (s *Server) serveClusters(w http.ResponseWriter) {
	type state struct {
		Name string `json:"name"`
		// Aliases are other names, which also lead to the cluster.
		Aliases []string `json:"aliases,omitempty"`
		// UID is that of the namespace kube-system, empty if it cannot be read: then
		// another cluster at the same address is not noticed.
		UID string `json:"uid,omitempty"`
		// Scope is the part that is mirrored, if it is not the whole cluster.
		Scope     string `json:"scope,omitempty"`
		State     string `json:"state"`
		Since     string `json:"since,omitempty"`
		Error     string `json:"error,omitempty"`
		Synced    int    `json:"synced"`
		Resources int    `json:"resources"`
		Objects   int    `json:"objects"`
		// JSON are the resources of [fleet.Status.JSON].
		JSON []string `json:"json,omitempty"`
	}
	answer := struct {
		Clusters []state `json:"clusters"`
	}{Clusters: []state{}}
	for _, m := range s.fleet.Members() {
		is := m.Status()
		one := state{Name: m.Name(), Aliases: m.Aliases(), UID: is.Identity.UID, State: is.State.String(), Synced: is.Synced, Resources: is.Resources, Objects: is.Objects}
		for _, r := range is.JSON {
			one.JSON = append(one.JSON, r.String())
		}
		if !is.Since.IsZero() {
			one.Since = is.Since.UTC().Format(time.RFC3339)
		}
		if !is.Scope.Whole() {
			one.Scope = is.Scope.String()
		}
		if is.Err != nil {
			one.Error = shorten(is.Err.Error(), mostCause)
		}
		answer.Clusters = append(answer.Clusters, one)
	}
	body, err := json.Marshal(answer)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", mediaTypes[asJSON])
	_, _ = w.Write(append(body, '\n'))
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// decoded is an object as a value of its Go type, or unstructured.
func decoded(o *wire.Object) (runtime.Object, error) {
	into := newValue(o.Kind())
	return into, o.DecodeInto(into)
}
