// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package mirror

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet/internal/collection"
	"github.com/watershed-project/watershed/fleet/internal/upstream"
	"github.com/watershed-project/watershed/fleet/internal/verify"
	"github.com/watershed-project/watershed/internal/engine"
	"github.com/watershed-project/watershed/internal/facets"
	"github.com/watershed-project/watershed/internal/history"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// Mirror is one resource of one member: an informer, which runs from the mirror's
// beginning to its end, and its source. While it is idle it costs two goroutines, one of
// which is net/http's, and about 20 KB besides the objects.
type Mirror struct {
	Cluster    string
	Resource   kube.Resource
	Source     *upstream.Source
	Informer   *collection.Informer
	Collection *collection.Collection // nil if the resource is not selected
	Feed       *history.Writer        // nil if the resource is not selected, or there is no history
	// End ends the run.
	End context.CancelFunc

	server *upstream.Server
	// seen is set after the first state, joined after that state was passed to Join. The engine
	// calls the tap with one batch at a time; its lock guards seen, joined and relisting.
	seen, joined bool
	// whole is the newest complete state. It is nil before the first list is complete or the
	// stored state is loaded. relists counts the lists since the first one that the informer has
	// applied, and relisting is set while it applies one.
	whole     atomic.Pointer[collection.State]
	relists   atomic.Uint64
	relisting bool
	// verified is the last verification, nil if there was none.
	verified atomic.Pointer[verify.Verification]
	// useJSON makes the member and the source read the resource as JSON. It is called before
	// the first request of the informer.
	useJSON func() error
}

// tap receives each batch that an informer has applied, see [watershed.SourceOptions.Tap].
type tap = func(s collection.State, changes []store.Change[*wire.Object], whole bool)

// newMirror returns a mirror of a resource that passes its batches to a tap. The function plan returns
// the plan for the facets of the objects, and may be nil. The function unknownFields is called with an
// object that has fields which its Go type does not have.
func newMirror(
	to *upstream.Server, s *Settings, r kube.Resource, q kube.Query, plan func(context.Context) *facets.Plan,
	unknownFields func(*wire.Object), t tap,
) (*Mirror, error) {
	at := r.GroupResource()
	var arrived func(version uint64)
	if s.Trace != nil {
		arrived = func(version uint64) { s.Trace.Arrived(to.Name(), at, version) }
	}
	src, err := upstream.NewSource(to, q, unknownFields, arrived)
	if err != nil {
		return nil, err
	}
	x := &Mirror{Cluster: to.Name(), server: to, Resource: r, Source: src}
	opts := s.Informer
	opts.Cluster, opts.Name, opts.Tap = to.Name(), at.String(), t
	opts.Window = 1 // the collection has its own window
	opts.Hooks = engine.Hooks{Counters: to.Counters, Stored: s.storedIn(to, r, x), Facets: plan}
	opts.Reflector.Logger = slog.New(Lowered(opts.Logger.Handler(), to.Disturb))
	opts.Reflector.Turn = src.Wait
	opts.Reflector.Reopen = true
	x.Informer = watershed.FromSource(src, &opts)
	src.Keep(x.Informer)
	return x, nil
}

// reached records a state after a batch. A state in the middle of a list is not whole.
func (x *Mirror) reached(s collection.State, whole bool) {
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
func (x *Mirror) run(ctx context.Context, logger *slog.Logger) {
	if err := x.Informer.Run(ctx); err != nil {
		x.logEnd(logger, err)
	}
}

// logEnd logs an error that has ended the mirror. It is not a part of run, whose stack is
// kept as long as the mirror runs.
//
//go:noinline
func (x *Mirror) logEnd(logger *slog.Logger, err error) {
	logger.Error("mirror ended", "resource", x.Resource.GroupResource().String(), "err", err)
}

// stop ends the mirror, and does not wait for run to return. If another mirror is to
// replace this one, its state stays readable.
func (x *Mirror) stop(replaced bool) {
	if x.Collection != nil {
		x.Collection.Forget(x.Cluster, x.Informer, replaced)
	}
	x.Feed.Close()
	x.End()
	x.Source.Close()
}

// Same reports whether the mirror is of a resource as it is served now, and whether it
// reads JSON as wanted and can be read if the resource is selected.
func (x *Mirror) Same(r kube.Resource, json, selected bool) bool {
	return (x.Collection != nil) == selected && x.Source.Query().JSON == json &&
		x.Resource.GroupVersionResource == r.GroupVersionResource && x.Resource.Namespaced == r.Namespaced &&
		x.Resource.Kind == r.Kind
}

// Lowered returns the handler of reflectors whose state a journal logs. It passes records on with level
// Debug, and calls disturb for each record of a higher level.
func Lowered(to slog.Handler, disturb func()) slog.Handler { return lowered{to, disturb} }

// lowered is the handler that Lowered returns.
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
