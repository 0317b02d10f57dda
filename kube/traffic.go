// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Traffic counts the requests of clusters that have it in their options, except those of
// [Cluster.Forward] and [Cluster.RoundTrip]. The zero value is ready to use. All methods
// are safe for concurrent use. It costs 56 bytes. A request costs an atomic addition, and
// so does each read of a response, usually of some KB.
type Traffic struct {
	requests, bytes [verbs]atomic.Uint64
	failed          atomic.Uint64
}

// verb is the kind of a request.
type verb uint8

const (
	verbGet verb = iota
	verbList
	verbWatch
	verbs = iota
)

// TrafficStats is the content of [Traffic] at one time.
type TrafficStats struct {
	// Get, List and Watch count requests. Get includes discovery. Each page of a list is a
	// request, and so is a request for the number of objects.
	Get, List, Watch Transfer
	// Failed counts the requests among them that had no response, or one with an error.
	Failed uint64
}

// Transfer is a number of requests, and the bytes of their responses before decompression.
type Transfer struct{ Requests, Bytes uint64 }

// Stats returns the content. On nil it returns the zero value.
func (t *Traffic) Stats() TrafficStats {
	if t == nil {
		return TrafficStats{}
	}
	of := func(v verb) Transfer { return Transfer{t.requests[v].Load(), t.bytes[v].Load()} }
	return TrafficStats{
		Get: of(verbGet), List: of(verbList), Watch: of(verbWatch), Failed: t.failed.Load(),
	}
}

// begin counts a request.
func (t *Traffic) begin(v verb) {
	if t != nil {
		t.requests[v].Add(1)
	}
}

// fail counts a request that has failed.
func (t *Traffic) fail() {
	if t != nil {
		t.failed.Add(1)
	}
}

// count counts the bytes of a response while they are read.
func (t *Traffic) count(resp *http.Response, v verb) {
	if t != nil {
		resp.Body = &countedBody{resp.Body, &t.bytes[v]}
	}
}

// countedBody counts the bytes that are read from a body.
type countedBody struct {
	io.ReadCloser
	bytes *atomic.Uint64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.bytes.Add(uint64(n))
	return n, err
}

// verb returns the verb of a request.
func (r *request) verb() verb {
	switch {
	case r.stream && r.query.Has("watch"):
		return verbWatch
	case r.stream:
		return verbList
	}
	return verbGet
}
