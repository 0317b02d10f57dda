// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/history"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/timer"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// mirror is one resource of one member: an informer, which runs from the mirror's
// beginning to its end, and its source. While it is idle it costs two goroutines, one of
// which is net/http's, and about 20 KB besides the objects.
type mirror struct {
	cluster    string
	server     *upstream.Server
	resource   kube.Resource
	source     *upstream.Source
	informer   *informer
	collection *collection.Collection // nil if the resource is not selected
	feed       *history.Writer        // nil if the resource is not selected, or there is no history
	// seen is set after the first state, joined after that state was passed to join. Only
	// the informer's goroutine uses them.
	seen, joined bool
	// whole is the newest state that the server had, nil before the first list. relists
	// counts the lists since the first one that the informer has applied, and relisting is
	// set while it applies one; only the informer's goroutine uses relisting.
	whole     atomic.Pointer[state]
	relists   atomic.Uint64
	relisting bool
	// verified is the last verification, nil if there was none.
	verified atomic.Pointer[verify.Verification]
	// useJSON makes the member and the source read the resource as JSON. It is called before
	// the first request of the informer.
	useJSON func() error
	// end ends the run.
	end context.CancelFunc
}

type (
	// informer keeps the states of one cluster's resource.
	informer = collection.Informer
	// state is one cluster's state of a resource.
	state = collection.State
)

// tap receives each batch that an informer has applied, see [watershed.Options.Tap].
type tap = func(s state, changes []store.Change[*wire.Object], whole bool)

// newMirror returns a mirror of a resource that passes its batches to a tap. UnknownFields
// is called with an object that has fields which its Go type does not have.
func newMirror(to *upstream.Server, s *settings, r kube.Resource, q kube.Query, unknownFields func(*wire.Object), t tap) (*mirror, error) {
	at := r.GroupResource()
	var arrived func(version uint64)
	if s.Trace != nil {
		arrived = func(version uint64) { s.Trace.Arrived(to.Name(), at, version) }
	}
	src, err := upstream.NewSource(to, q, unknownFields, arrived)
	if err != nil {
		return nil, err
	}
	x := &mirror{cluster: to.Name(), server: to, resource: r, source: src}
	opts := &watershed.Options[*wire.Object]{
		Cluster:        to.Name(),
		Name:           at.String(),
		Memory:         s.memory(),
		Packing:        s.packing,
		Drop:           s.Drop,
		TransformBytes: s.Transform,
		Window:         1, // the collection has its own window
		Report:         s.Report,
		Counters:       to.Counters,
		Reflector:      s.Reflector,
		Logger:         s.Logger,
		Tap:            t,
		Stored:         s.storedIn(to, r, x),
	}
	opts.Reflector.Logger = slog.New(lowered{s.Logger.Handler(), to.Disturb})
	opts.Reflector.Turn = src.Wait
	opts.Reflector.Reopen = true
	opts.Reflector.ListOnly = opts.Reflector.ListOnly || s.Budget.BytesPerSecond > 0
	x.informer = watershed.FromSource(src, opts)
	src.Keep(x.informer)
	return x, nil
}

// reached records a state after a batch. A state in the middle of a list is not whole.
func (x *mirror) reached(s state, whole bool) {
	if !whole {
		x.relisting = true
		return
	}
	x.whole.Store(&s)
	if x.relisting {
		x.relisting = false
		x.relists.Add(1)
	}
}

// run runs the informer until the mirror is ended.
func (x *mirror) run(ctx context.Context, logger *slog.Logger) {
	if err := x.informer.Run(ctx); err != nil {
		x.logEnd(logger, err)
	}
}

// logEnd logs an error that has ended the mirror. It is not a part of run, whose stack is
// kept as long as the mirror runs.
//
//go:noinline
func (x *mirror) logEnd(logger *slog.Logger, err error) {
	logger.Error("mirror ended", "resource", x.resource.GroupResource().String(), "err", err)
}

// stop ends the mirror, and does not wait for run to return. If another mirror is to
// replace this one, its state stays readable.
func (x *mirror) stop(replaced bool) {
	if x.collection != nil {
		x.collection.Forget(x.cluster, x.informer, replaced)
	}
	x.feed.Close()
	x.end()
	x.source.Close()
}

// same reports whether the mirror is of a resource as it is served now, and whether it
// reads JSON as wanted and can be read if the resource is selected.
func (x *mirror) same(r kube.Resource, json, selected bool) bool {
	return (x.collection != nil) == selected && x.source.Query().JSON == json &&
		x.resource.GroupVersionResource == r.GroupVersionResource && x.resource.Namespaced == r.Namespaced && x.resource.Kind == r.Kind
}

// lowered passes records on with level Debug, and calls disturb for each record of a
// higher level. It is the handler of reflectors whose state a journal logs.
type lowered struct {
	slog.Handler
	disturb func()
}

// Enabled always returns true for higher levels than Debug, since Handle must see them
// even if they are not written.
func (h lowered) Enabled(ctx context.Context, level slog.Level) bool {
	return level > slog.LevelDebug || h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h lowered) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > slog.LevelDebug {
		h.disturb()
		r.Level = slog.LevelDebug
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h lowered) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lowered{h.Handler.WithAttrs(attrs), h.disturb}
}

// WithGroup implements [slog.Handler].
func (h lowered) WithGroup(name string) slog.Handler {
	return lowered{h.Handler.WithGroup(name), h.disturb}
}

const (
	// verifyWait is how long a comparison waits for the copy, if the server has returned
	// another version than the requested one.
	verifyWait = 5 * time.Second
	// relistPoll is how often a repair checks whether the mirror has listed the resource.
	relistPoll = 20 * time.Millisecond
)

// Resource returns the resource as the mirror reads it.
func (x *mirror) Resource() kube.Resource { return x.resource }

// Newest returns the newest whole state. There is one.
func (x *mirror) Newest() collection.State { return *x.whole.Load() }

// Transformed returns an object as the mirror keeps it.
func (x *mirror) Transformed(o *wire.Object) (*wire.Object, error) { return x.informer.Transformed(o) }

// SetVerified records the result of the last verification.
func (x *mirror) SetVerified(v *verify.Verification) { x.verified.Store(v) }

// List reads the state of the server at a version.
func (x *mirror) List(
	ctx context.Context, version uint64, deep bool, each func(*wire.Object) error, skip func(key string),
) (uint64, error) {
	list := &upstream.Listing{Server: x.server, Query: x.source.Query(), Each: each, Skip: skip}
	list.Query.MetadataOnly = !deep
	return list.Read(ctx, version)
}

// At returns the state of the copy at a version, or the newest one if that is not
// available, and its version. It waits a while for a version that the copy has not
// reached.
func (x *mirror) At(ctx context.Context, version uint64) (iter.Seq2[string, *wire.Object], uint64) {
	if feed := x.feed.Feed(); feed != nil {
		waiting, cancel := context.WithTimeout(ctx, verifyWait)
		defer cancel()
		_, _ = feed.Wait(waiting, version) // without it, the newest state is used
		if past, err := feed.At(version); err == nil {
			return past.Range("", ""), version
		}
	}
	now := *x.whole.Load()
	return now.Raw(), now.Version()
}

// relist makes the mirror list its resource again, and waits until it has the new state. With "back"
// it replaces also newer states. Valid reports whether the mirror is still in use.
func (x *mirror) relist(ctx context.Context, back bool, valid func() bool) error {
	before := x.relists.Load()
	if back {
		x.informer.RelistBack()
	} else {
		x.informer.Relist()
	}
	for x.relists.Load() == before {
		if !valid() {
			return errors.New("the mirror was replaced")
		}
		if err := timer.Sleep(ctx, relistPoll); err != nil {
			return fmt.Errorf("wait for the list: %w", err)
		}
	}
	return nil
}
