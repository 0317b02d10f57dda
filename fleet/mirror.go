// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"context"
	"log/slog"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// mirror is one resource of one member: an informer, which runs from the mirror's
// beginning to its end, and its source. It costs three goroutines, one of which is
// net/http's, and about 44 KB besides the objects.
type mirror struct {
	cluster    string
	resource   kube.Resource
	source     *source
	informer   *watershed.Informer[*wire.Object]
	collection *collection // nil if the resource is not selected
	feed       *Feed       // nil if the resource is not selected, or there is no history
	// seen is set after the first state, joined after that state was passed to join. Only
	// the informer's goroutine uses them.
	seen, joined bool
	// end ends the run.
	end context.CancelFunc
}

// newMirror returns the mirror of a resource. Only selected resources can be read. The
// member's mu is held.
func newMirror(m *Member, cluster *kube.Cluster, r kube.Resource, selected bool) (*mirror, error) {
	query := kube.Query{Resource: r.GroupVersionResource, MetadataOnly: true}
	if selected {
		query = m.fleet.scopeOf(m.used).query(r)
	}
	query.JSON = m.asJSON[r.GroupResource()]
	src, err := newSource(m, cluster, query)
	if err != nil {
		return nil, err
	}
	f := m.fleet
	x := &mirror{cluster: m.name, resource: r, source: src}
	opts := &watershed.Options[*wire.Object]{
		Cluster:        m.name,
		Name:           r.GroupResource().String(),
		Memory:         f.memory(),
		Packing:        f.packing,
		Drop:           f.opts.Drop,
		TransformBytes: f.opts.Transform,
		Window:         1, // the collection has its own window
		Report:         f.opts.Report,
		Reflector:      f.opts.Reflector,
		Logger:         f.opts.Logger,
		Tap: func(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], whole bool) {
			src.synced.Store(true)
			m.applied(x, s, changes)
			x.feed.applied(s, changes, whole)
		},
	}
	opts.Reflector.Logger = slog.New(lowered{f.opts.Logger.Handler(), func() { f.journal.disturb(m) }})
	opts.Reflector.Turn = src.wait
	opts.Reflector.Reopen = true
	opts.Reflector.ListOnly = opts.Reflector.ListOnly || f.opts.Budget.BytesPerSecond > 0
	x.informer = watershed.FromSource(src, opts)
	if selected {
		if f.opts.History > 0 {
			x.feed = newFeed(x)
			x.feed.succeed(m.feedBefore(r.GroupResource()))
		}
		x.collection = f.collection(r.GroupResource())
		x.collection.introduce(x.cluster, x.informer)
	}
	return x, nil
}

// run runs the informer until the mirror is ended.
func (x *mirror) run(ctx context.Context, logger *slog.Logger) {
	if err := x.informer.Run(ctx); err != nil {
		logger.Error("mirror ended", "resource", x.resource.GroupResource().String(), "err", err)
	}
}

// same reports whether the mirror is of a resource as it is served now, and whether it
// reads JSON as wanted.
func (x *mirror) same(r kube.Resource, json bool) bool {
	return x.source.query.JSON == json && x.resource.GroupVersionResource == r.GroupVersionResource && x.resource.Namespaced == r.Namespaced && x.resource.Kind == r.Kind
}
