// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

const (
	// listingPage is how many objects a page of a listing has.
	listingPage = 500
	// listingTimeout limits how long one page may take.
	listingTimeout = 2 * time.Minute
	// listingPause is the longest pause between two pages. A listing pauses for as long as
	// the last page took, so it keeps the server busy at most half of the time.
	listingPause = time.Second
	// listingTries is how often a page is requested again from a server that is busy.
	listingTries = 5
	// listingEmpty is how many pages in a row may have no objects.
	listingEmpty = 100
)

// Listing reads a state of a server in pages, once and for a reader that does not keep it.
// It takes a turn like the lists of mirrors, and reads one page at a time.
type Listing struct {
	Server *Server
	Query  kube.Query
	// Each is called for each object, and Skip with the key of each object that could not be
	// read, "" if the key is not known.
	Each func(*wire.Object) error
	Skip func(key string)

	turn *Turn
}

// Read reads the state at a version, the most recent one if it is 0, and returns the
// version of the state. A server that ignores the version returns another one.
func (l *Listing) Read(ctx context.Context, version uint64) (uint64, error) {
	query := l.Query
	query.Tweak = exactly
	cluster := l.Server.Cluster()
	if cluster == nil {
		return 0, errors.New("directory has no configuration for the cluster")
	}
	source, err := cluster.Source(query)
	if err != nil {
		return 0, err
	}
	if l.turn, err = l.Server.TakeTurn(ctx); err != nil {
		return 0, fmt.Errorf("wait for a turn to list: %w", err)
	}
	defer func() {
		if l.turn != nil {
			l.turn.Leave()
		}
	}()
	opts := reflector.ListOptions{Limit: listingPage}
	if version != 0 {
		opts.Version = strconv.FormatUint(version, 10)
	}
	return l.pages(ctx, source, opts)
}

// exactly makes a list that names a version be at that version.
func exactly(o *metav1.ListOptions) {
	if o.ResourceVersion != "" && o.ResourceVersion != "0" {
		o.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	}
}

// pages reads all pages, which have the version of the first one.
func (l *Listing) pages(
	ctx context.Context, source *kube.Source, opts reflector.ListOptions,
) (version uint64, err error) {
	for empty := 0; ; {
		began, n := time.Now(), 0
		page, err := l.retried(ctx, source, opts, &n)
		if err != nil {
			return 0, err
		}
		if version == 0 {
			if version, err = strconv.ParseUint(page.Version, 10, 64); err != nil {
				return 0, fmt.Errorf("version of the list: %w", err)
			}
		}
		if page.Continue == "" {
			return version, nil
		}
		empty++
		if n > 0 {
			empty = 0
		}
		if empty >= listingEmpty {
			return 0, fmt.Errorf("%d pages in a row have no objects, and the list does not end", empty)
		}
		opts = reflector.ListOptions{Limit: opts.Limit, Continue: page.Continue}
		if err := timer.Sleep(ctx, min(time.Since(began), listingPause)); err != nil {
			return 0, err
		}
	}
}

// retried reads a page. If the server is busy, it gives up the turn, and reads the page
// again in the next one. N counts the objects.
func (l *Listing) retried(
	ctx context.Context, source *kube.Source, opts reflector.ListOptions, n *int,
) (page reflector.Page, err error) {
	for tries := 0; ; tries++ {
		page, err = l.page(ctx, source, opts, n)
		l.Server.DelayListsAfter(err)
		if reflector.ReasonOf(err) != reflector.Busy || tries == listingTries {
			return page, err
		}
		l.turn.Leave()
		l.turn = nil
		if l.turn, err = l.Server.TakeTurn(ctx); err != nil {
			return page, fmt.Errorf("wait for a turn to list: %w", err)
		}
	}
}

// page reads one page.
func (l *Listing) page(
	ctx context.Context, source *kube.Source, opts reflector.ListOptions, n *int,
) (reflector.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	var a arrival
	recognize := sync.OnceValue(func() error { return l.Server.recognize(ctx, &a) })
	l.turn.awaits()
	page, err := source.List(a.traced(ctx), opts, func(o *wire.Object) error {
		if err := recognize(); err != nil {
			return err
		}
		*n++
		l.turn.received()
		if err := l.Server.throttle.Read(ctx, o.Size()); err != nil {
			return err
		}
		return l.Each(o)
	})
	if err == nil {
		err = recognize()
	}
	if err != nil {
		return page, err
	}
	for _, skipped := range page.Skipped {
		var e *reflector.Error
		if errors.As(skipped, &e) && !e.Nameless {
			l.Skip(e.Key)
		}
	}
	return page, nil
}
