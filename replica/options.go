// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/document"
	"github.com/watershed-project/watershed/replica/internal/passthrough"
)

type (
	// Membership is the state of a program in its replica group.
	Membership = document.Membership
	// Peer is another member of the replica group.
	Peer = document.Peer
)

// Options configure a [Server]. The zero value, and nil, are the defaults.
type Options struct {
	// Blocks is how many bytes of lists are kept for the next reader, compressed.
	// Default 256 MiB.
	Blocks int64
	// Frames is how many bytes of events are kept for other watchers, including the objects
	// that they are made from. Default 64 MiB.
	Frames int
	// Decoded is about how many bytes of decoded objects are kept for field selectors and
	// tables. Default 64 MiB.
	Decoded int
	// WriteTimeout is how long a client may make no progress in reading a response before
	// it is cut off. Default 30 s.
	WriteTimeout time.Duration
	// OriginTimeout is how long a cluster may take to send the headers of its response to a
	// request that is passed on and, unless that is a watch, how long it may send nothing of
	// the body. Default 1 minute, the limit of kube-apiserver.
	OriginTimeout time.Duration
	// ProgramResources are resources that the program answers itself. Default: none.
	ProgramResources []ProgramResource
	// Pages are handlers for paths of the server itself, such as /metrics. The hooks are called
	// before them. Default: none.
	Pages map[string]http.Handler
	// OriginRequests is how many requests may be passed on to one cluster at once, apart
	// from watches, half of them for one user. Any more are refused with 429. Default 32.
	OriginRequests int
	// OriginWatches is how many watches may be passed on to one cluster at once, half of them
	// for one user. Any more are refused with 429. Default 100.
	OriginWatches int
	// PassThrough means that requests below /clusters that the copy cannot answer are passed
	// on to the cluster with the credentials of the caller, never with those of the fleet:
	// writes, resources and versions that are not mirrored, media types and old states that
	// the copy does not have, consistent reads, logs and terminals, discovery and OpenAPI. Reads of a user wait for
	// the user's own writes. Default: such requests are refused.
	PassThrough bool
	// PassedRequests is how many requests may be passed on to one cluster at once for
	// callers, half of them for one user, and PassedConnections how many that stay open, such
	// as watches and terminals. Any more are refused with 429. Default 400, as many as
	// kube-apiserver answers, and 1,000.
	PassedRequests, PassedConnections int
	// Peers connects the server with other replicas of the same clusters, if PassThrough is set.
	// Default: there are none.
	Peers *Peers
	// Problems, unless it is nil, returns the problems of the program itself, for the document
	// at /clusters. It is called at the same time from several goroutines. Default: none.
	Problems func() []fleet.Problem
	// Membership, unless it is nil, returns the state of the program in its replica group, for the
	// document at /clusters. It is called at the same time from several goroutines. Default: none.
	Membership func() *Membership
	// FleetWarning, unless it is nil, returns a Warning for the responses below /fleet, "" for
	// none. It is called at the same time from several goroutines. Default: none.
	FleetWarning func() string
	// Version describes the program, for the document at /clusters. Default: none.
	Version string
	// Logger receives all messages. Default: slog.Default().
	Logger *slog.Logger

	// Authorize, unless it is nil, decides whether a request may be answered, and what of
	// the fleet its caller may see. It is called for every request that Admit does not
	// refuse, before the resource or the object is looked up, and again if the copy answers
	// a request that was to be passed on. Its error is the response: one
	// without a status of the Kubernetes API becomes a 500. A nil Access means everything.
	// Requests with Impersonate headers reach it: it must apply or refuse them. Default: all
	// requests may read everything, and those with Impersonate headers are refused.
	Authorize func(r *http.Request, q *Request) (*Access, error)
	// Admit, unless it is nil, may delay or refuse a request, to bound the work in
	// progress. It is called before Authorize. It may set Passed of the request to false, if
	// the caller's credentials cannot be passed on, and may set Started. Done is called when the
	// response is complete, or when a request that the copy was to answer is passed on. Default: no
	// bound.
	Admit func(r *http.Request, q *Request) (done func(), err error)
	// Audit, unless it is nil, is called after every response, and also when the response to
	// a watch begins. The goroutine of the request calls it and waits for it. Default: no
	// audit.
	Audit func(r *http.Request, q *Request, outcome Outcome)
	// Trace, unless it is nil, is called for every request before Admit, and returns what
	// follows the request, or nil. Default: no request is followed.
	Trace func(r *http.Request, q *Request) Trace
	// DeliveryTrace, unless it is nil, follows a sample of the changes to the clients of watches.
	// Default: no change is followed.
	DeliveryTrace DeliveryTrace
}

func (o *Options) withDefaults() Options {
	var opts Options
	if o != nil {
		opts = *o
	}
	setDefault(&opts.Blocks, 256<<20)
	setDefault(&opts.Frames, 64<<20)
	setDefault(&opts.Decoded, 64<<20)
	setDefault(&opts.WriteTimeout, 30*time.Second)
	setDefault(&opts.OriginTimeout, time.Minute)
	setDefault(&opts.OriginRequests, 32)
	setDefault(&opts.OriginWatches, 100)
	setDefault(&opts.PassedRequests, 400)
	setDefault(&opts.PassedConnections, 1000)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return opts
}

// originLimits returns the limits of requests that are passed on with the credentials of the fleet.
func (o *Options) originLimits() passthrough.Limits {
	return passthrough.Limits{Requests: o.OriginRequests, Connections: o.OriginWatches, Timeout: o.OriginTimeout}
}

// passedLimits returns the limits of requests that are passed on with the credentials of their callers.
func (o *Options) passedLimits() passthrough.Limits {
	return passthrough.Limits{Requests: o.PassedRequests, Connections: o.PassedConnections, Timeout: o.OriginTimeout}
}

// setDefault sets an option that is not positive.
func setDefault[T int | int64 | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}
