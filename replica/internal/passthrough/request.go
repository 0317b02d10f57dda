// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request is what this package needs to know about a request that is passed on.
type Request struct {
	// Path is the path at the cluster. Query are the parameters that the client has sent.
	Path  string
	Query url.Values
	// Verb is that of the Kubernetes API. The fields after it are empty for a path that is not a resource.
	Verb string
	schema.GroupVersionResource
	Namespace, Name, Subresource string
	// User is the user that sent the request, "" without access control.
	User string
	// StaysOpen means that the request takes as long as its client wants, Watch that it is a watch, and
	// Proxied that the response comes from a program in the cluster.
	StaysOpen, Watch, Proxied bool
	// Changes means that the request may change objects of its resource.
	Changes bool
	// Late means that the copy does not have the writes of the user yet.
	Late bool
	// PassOn is called before the request is sent with these headers, which it may change. End is called
	// with the code of the response, or with an error.
	PassOn func(ctx context.Context, header http.Header) (_ context.Context, end func(code int, err error))

	// uid is that of the object in the copy before a binding or an eviction was passed on, ""
	// if it is not known.
	uid types.UID
	// unconfirmed means that another replica has not confirmed the note of a conflict.
	unconfirmed bool
}

// reads reports whether the verb is that of a read.
func (q *Request) reads() bool { return q.Verb == "get" || q.Verb == "list" || q.Verb == "watch" }

// Limits limit what is passed on to one cluster at once. One user may have half of each number.
type Limits struct {
	// Requests limits requests that end soon, and Connections those that stay open.
	Requests, Connections int
	// Timeout is how long the cluster may take to send headers, and to send the next part
	// of a body that does not stay open.
	Timeout time.Duration
}
