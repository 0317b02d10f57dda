// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/watershed-project/watershed/kube"
)

const (
	// patience is how long the origin may take to respond, and brief how long if there is
	// a copy.
	patience = 10 * time.Second
	brief    = 2 * time.Second
	// pause is how long a failure is returned to later requests that have no copy.
	pause = time.Second
	// fetchesAtOnce is how many documents of a cluster are read at once. Each takes up to
	// twice the size of its compressed form.
	fetchesAtOnce = 4
)

// Options tune [Documents]. The zero value, and nil, are the defaults.
type Options struct {
	// Interval is how long a copy is served without checking it at the API server.
	// Default 10 seconds.
	Interval time.Duration
	// Bytes bounds the size of all copies, which are compressed. Default 16 MiB, many
	// times the size for a cluster without custom types.
	Bytes int
}

// Documents are copies of one cluster's documents. All methods are safe for concurrent
// use.
type Documents struct {
	origin func() *kube.Cluster
	opts   Options
	// fetching has a token for each request to the origin.
	fetching chan struct{}

	mu      sync.Mutex
	changed time.Time
	kept    map[key]*document
	bytes   int
	uses    uint64
}

// document is the state of a document.
type document struct {
	// turn is held by the request to the origin. It is a channel, because waiting for it
	// must be cancellable.
	turn chan struct{}

	// The rest is guarded by Documents.mu.
	copy    *edition
	checked time.Time // when the copy was last known to be current
	err     error     // of the last attempt
	failed  time.Time
	used    uint64
}

// New returns the documents of the cluster that origin returns, which may be nil while
// there is none. It sends no request. A nil opts means the defaults.
func New(origin func() *kube.Cluster, opts *Options) *Documents {
	d := &Documents{origin: origin, kept: map[key]*document{}, fetching: make(chan struct{}, fetchesAtOnce)}
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.Interval <= 0 {
		d.opts.Interval = 10 * time.Second
	}
	if d.opts.Bytes <= 0 {
		d.opts.Bytes = 16 << 20
	}
	return d
}

// Changed marks all copies as outdated, because the cluster's types have changed. Each
// document is requested again when it is next needed.
func (d *Documents) Changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = time.Now()
}

// peek returns the copy of a document, if there is one, and when it was last known to be
// current.
func (d *Documents) peek(k key) (*edition, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc := d.kept[k]
	if doc == nil || doc.copy == nil {
		return nil, time.Time{}
	}
	d.use(doc)
	return doc.copy, doc.checked
}

// use records that the document was requested. The caller holds d.mu.
func (d *Documents) use(doc *document) {
	d.uses++
	doc.used = d.uses
}

// current returns a document as it was at the given time or later, not older than the
// interval and not older than the last change. If the origin fails, it returns the copy.
func (d *Documents) current(ctx context.Context, k key, since time.Time) (*edition, error) {
	d.mu.Lock()
	doc := d.kept[k]
	if doc == nil {
		doc = &document{turn: make(chan struct{}, 1)}
		d.kept[k] = doc
	}
	d.use(doc)
	d.mu.Unlock()
	if e, done, err := d.settled(doc, since); done {
		return e, err
	}
	select {
	case doc.turn <- struct{}{}:
		defer func() { <-doc.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for %s: %w", k.path, ctx.Err())
	}
	// The previous holder of the turn may have requested the document meanwhile.
	if e, done, err := d.settled(doc, since); done {
		return e, err
	}
	return d.renew(ctx, k, doc)
}

// settled reports whether no request to the origin is needed: the copy is current, or the
// origin has failed recently.
func (d *Documents) settled(doc *document, since time.Time) (*edition, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	fresh := doc.checked.After(now.Add(-d.opts.Interval)) && doc.checked.After(d.changed) && !doc.checked.Before(since)
	if doc.copy != nil && fresh {
		return doc.copy, true, nil
	}
	if doc.err == nil || doc.failed.Before(d.changed) {
		return nil, false, nil
	}
	if doc.copy != nil {
		return doc.copy, doc.failed.After(now.Add(-d.opts.Interval)), nil
	}
	return nil, doc.failed.After(now.Add(-pause)), doc.err
}

// renew requests the document from the origin. The caller holds the turn.
func (d *Documents) renew(ctx context.Context, k key, doc *document) (*edition, error) {
	d.mu.Lock()
	old := doc.copy
	d.mu.Unlock()
	limit := patience
	if old != nil {
		limit = brief
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	next, err := d.fetch(bounded, k, old)
	if ctx.Err() != nil && err != nil {
		// The end of the client's request does not mean that the origin has failed.
		return nil, fmt.Errorf("get %s: %w", k.path, ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	doc.err, doc.failed = err, time.Now()
	var r *refusal
	switch {
	case err == nil:
		doc.checked = began
		d.keep(k, doc, next)
		return next, nil
	case errors.As(err, &r) && r.final():
		d.keep(k, doc, nil)
		return nil, err
	case old != nil:
		return old, nil
	}
	return nil, err
}

// fetch requests a document from the origin, when few others are being requested.
func (d *Documents) fetch(ctx context.Context, k key, old *edition) (*edition, error) {
	select {
	case d.fetching <- struct{}{}:
		defer func() { <-d.fetching }()
	case <-ctx.Done():
		return nil, fmt.Errorf("get %s: %w", k.path, ctx.Err())
	}
	return fetch(ctx, d.origin(), k, old)
}

// keep makes e the copy of a document, and drops other copies if they exceed the bound.
// The caller holds d.mu.
func (d *Documents) keep(k key, doc *document, e *edition) {
	if d.kept[k] != doc || doc.copy == e {
		return // dropped meanwhile, or unchanged
	}
	d.drop(doc)
	if e == nil || len(e.gzipped) > d.opts.Bytes {
		return
	}
	doc.copy = e
	d.bytes += len(e.gzipped)
	if k.path == indexPath {
		d.forget(e.hashes)
	}
	for d.bytes > d.opts.Bytes {
		var oldest *document
		for _, other := range d.kept {
			if other != doc && other.copy != nil && (oldest == nil || other.used < oldest.used) {
				oldest = other
			}
		}
		d.drop(oldest)
	}
}

// drop drops a copy. The caller holds d.mu.
func (d *Documents) drop(doc *document) {
	if doc.copy != nil {
		d.bytes -= len(doc.copy.gzipped)
		doc.copy = nil
	}
}

// forget drops the documents that are no longer in an index. The caller holds d.mu.
func (d *Documents) forget(hashes map[string]string) {
	for k, doc := range d.kept {
		name, below := strings.CutPrefix(k.path, indexPath+"/")
		if _, there := hashes[name]; below && !there {
			d.drop(doc)
			delete(d.kept, k)
		}
	}
}
