// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fleet/internal/quota"
	"github.com/watershed-project/watershed/fleet/internal/selection"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var _ reflector.Getter = (*Source)(nil)

// Source lists and watches a resource of a server, within the server's budget. It moves
// to another connection when the credentials change.
type Source struct {
	server *Server
	// unknownFields is called with an object that has fields which its Go type does not
	// have, see checkFields.
	unknownFields func(*wire.Object)
	// arrived is called with the version of each change that a watch has read, nil if nothing
	// follows them.
	arrived func(version uint64)

	// synced is set when the mirror has had a complete state, aware when an object with
	// unknown fields was seen.
	synced, aware atomic.Bool

	// turn is held while the state is listed, and missed is when the resource was last
	// not found. Only the reflector's goroutine uses them, and those of the next group.
	turn   *Turn
	missed time.Time
	// used counts the objects for the limits of the cluster.
	used *quota.Usage
	// kinds are the kinds of the objects, and kind is that of the last one.
	kinds map[schema.GroupVersionKind]struct{}
	kind  *wire.Kind
	// expected is how many objects the server reported before the first list, or -1 if
	// that is not known.
	expected atomic.Int64

	// mu guards the fields below: the connection in use and the watch that is open on it,
	// if any. Only UseJSON changes query, before the first request, so that the reflector's
	// goroutine can read it without mu.
	mu      sync.Mutex
	query   kube.Query
	current *kube.Source
	open    *watch
}

// NewSource returns the source of a query on the server's current connection. UnknownFields is called
// with an object that has fields which its Go type does not have. Arrived, if it is not nil, is
// called with the version of each change that a watch has read.
func NewSource(
	to *Server, q kube.Query, unknownFields func(*wire.Object), arrived func(version uint64),
) (*Source, error) {
	current, err := to.Cluster().Source(q)
	if err != nil {
		return nil, err
	}
	s := &Source{
		server: to, query: q, unknownFields: unknownFields, arrived: arrived, current: current, used: to.account.Open(),
	}
	s.expected.Store(-1)
	return s, nil
}

// Keep sets the informer that the objects go to. It is called before the source is used.
func (s *Source) Keep(of *watershed.Informer[*wire.Object]) { s.used.Keep(of) }

// Close ends the use of the source, whose objects are about to be freed.
func (s *Source) Close() { s.used.Close() }

// Complete records that the mirror has had a complete state.
func (s *Source) Complete() { s.synced.Store(true) }

// Expected returns how many objects the server reported before the first list, or -1 if that is
// not known.
func (s *Source) Expected() int { return int(s.expected.Load()) }

// Wait takes a turn. See [reflector.Options.Turn]. If there is no memory for the list, it
// returns an error the first time, so that the status has it, and waits the next time.
func (s *Source) Wait(ctx context.Context) (func(), error) {
	for {
		if err := s.used.Await(ctx, s.expected.Load()); err != nil {
			return nil, err
		}
		t, err := s.server.TakeTurn(ctx)
		if err != nil {
			return nil, err
		}
		s.count(ctx)
		begun, err := s.used.Begin(s.expected.Load(), s.synced.Load())
		if begun {
			s.turn = t
			return s.leave, nil
		}
		t.Leave()
		if err != nil {
			return nil, err
		}
	}
}

// leave ends a turn.
func (s *Source) leave() {
	s.used.End()
	s.turn.Leave()
	s.turn = nil
}

// count requests the number of objects, once, for the field Expected of a status. If the server does
// not return it, the objects are listed all the same.
func (s *Source) count(ctx context.Context) {
	if s.expected.Load() >= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ClusterPatience)
	defer cancel()
	n, err := s.source().Count(ctx)
	s.server.DelayListsAfter(err)
	if err == nil {
		s.expected.Store(int64(n))
	}
}

// Use switches to another connection. The open watch ends with io.EOF, so that the
// reflector continues from its version on the new connection.
func (s *Source) Use(cluster *kube.Cluster) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := cluster.Source(s.query)
	if err != nil {
		return err
	}
	s.current = next
	if s.open != nil {
		s.open.replace()
	}
	return nil
}

// UseJSON reads JSON from now on. The goroutine of the reflector calls it, before the first
// request.
func (s *Source) UseJSON() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := s.query
	query.JSON = true
	next, err := s.server.Cluster().Source(query)
	if err != nil {
		return err
	}
	s.query, s.current = query, next
	return nil
}

// Query returns the query of the source.
func (s *Source) Query() kube.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.query
}

func (s *Source) source() *kube.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// List implements [reflector.Source].
func (s *Source) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	var a arrival
	recognize := sync.OnceValue(func() error { return s.server.recognize(ctx, &a) })
	page, err := s.source().List(a.traced(ctx), opts, func(o *wire.Object) error {
		if err := recognize(); err != nil {
			return err
		}
		if err := s.received(ctx, o); err != nil {
			return err
		}
		if err := s.checkFields(o); err != nil {
			return err
		}
		if err := s.charge(ctx, o); err != nil {
			return err
		}
		defer s.awaits()
		return each(o)
	})
	if err == nil {
		err = recognize()
	}
	s.server.DelayListsAfter(err)
	return page, err
}

// Get implements [reflector.Getter].
func (s *Source) Get(ctx context.Context, key string) (uid, version string, err error) {
	var a arrival
	uid, version, err = s.source().Get(a.traced(ctx), key)
	if err == nil {
		err = s.server.recognize(ctx, &a)
	}
	s.server.DelayListsAfter(err)
	return uid, version, err
}

// Watch implements [reflector.Source].
func (s *Source) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	if s.turn == nil {
		s.used.Complete()
		if err := s.used.Await(ctx, s.expected.Load()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{source: s, ctx: ctx, cancel: cancel}
	s.mu.Lock()
	current := s.current
	s.open = w
	s.mu.Unlock()
	var a arrival
	inner, err := current.Watch(a.traced(ctx), opts)
	if err == nil {
		if err = s.server.recognize(ctx, &a); err != nil {
			_ = inner.Close() // it may be another cluster's
		}
	}
	if err != nil {
		s.server.DelayListsAfter(err)
		w.end()
		return nil, w.cause(err)
	}
	w.inner = inner
	w.waiter, _ = inner.(reflector.Waiter)
	return w, nil
}

// Served implements [reflector.Source]. It is called when the server does not have the
// resource, so the member has to run discovery again. A resource that is served in
// another version is about to be mirrored in that version.
func (s *Source) Served(ctx context.Context) (bool, error) {
	if time.Since(s.missed) > time.Minute { // the reflector calls it more often
		s.missed = time.Now()
		s.server.RequestDiscovery()
	}
	var a arrival
	served, err := s.source().Served(a.traced(ctx))
	if err != nil || served {
		return served, err
	}
	// The absence of a resource in another cluster means nothing for this one.
	if err := s.server.recognize(ctx, &a); err != nil {
		return false, err
	}
	resources, err := s.server.Cluster().Resources(ctx)
	gone := s.query.Resource
	for _, r := range resources {
		if r.GroupResource() == gone.GroupResource() && selection.Watchable(r) {
			return false, fmt.Errorf("%s is not served in version %s any more, but in %s", gone.GroupResource(),
				gone.Version, r.Version)
		}
	}
	var group *kube.GroupError
	if err != nil && (!errors.As(err, &group) || len(resources) == 0) {
		return false, err
	}
	return false, nil
}

// checkFields makes the member mirror the resource as JSON when an object in protobuf has
// fields that its Go type does not have: they would be missing from JSON that is made of
// it. The first state is then not completed, so that no client sees it. After the first
// state, the mirror continues until the new one has synced. It costs about 2 us for a
// pod.
func (s *Source) checkFields(o *wire.Object) error {
	if s.query.MetadataOnly || s.aware.Load() && s.synced.Load() || !o.HasUnknownFields() {
		return nil
	}
	s.aware.Store(true)
	s.unknownFields(o)
	if s.synced.Load() {
		return nil
	}
	return fmt.Errorf("%s has fields that this program does not know: the resource will be read as JSON", o)
}

// mostKinds is how many kinds the objects of a resource may have. They have one, but the
// objects of a custom resource contain it themselves, and packing keeps some 300 KB for
// each kind.
const mostKinds = 8

// checkKind returns an error if the objects of the resource have too many kinds.
func (s *Source) checkKind(o *wire.Object) error {
	if o.Kind() == s.kind {
		return nil
	}
	kind := o.GroupVersionKind()
	if _, ok := s.kinds[kind]; !ok {
		if len(s.kinds) >= mostKinds {
			return s.used.Refuse(fmt.Errorf("%w: %s is of kind %s, and objects of the resource have %d other kinds",
				quota.ErrLimit, o.Key(), kind, mostKinds))
		}
		if s.kinds == nil {
			s.kinds = map[schema.GroupVersionKind]struct{}{}
		}
		s.kinds[kind] = struct{}{}
	}
	s.kind = o.Kind()
	return nil
}

// charge counts an object that is about to be kept. It returns an error if the object must not be
// kept. It may wait for memory.
func (s *Source) charge(ctx context.Context, o *wire.Object) error {
	if err := s.checkKind(o); err != nil {
		return err
	}
	return s.used.Charge(ctx, o, s.turn != nil, s.synced.Load())
}

// received records an object of a state that is being read, and waits if the budget requires
// it.
func (s *Source) received(ctx context.Context, o *wire.Object) error {
	if s.turn == nil {
		return nil
	}
	s.turn.received()
	return s.server.throttle.Read(ctx, o.Size())
}

func (s *Source) awaits() {
	if s.turn != nil {
		s.turn.awaits()
	}
}

// watch is an open watch.
type watch struct {
	source *Source
	ctx    context.Context
	cancel context.CancelFunc
	inner  reflector.Watch[*wire.Object]
	waiter reflector.Waiter // the same watch

	// mu guards replaced, which is set when another connection is in use.
	mu       sync.Mutex
	replaced bool
}

// Wait implements [reflector.Waiter].
func (w *watch) Wait() {
	if w.waiter != nil {
		w.waiter.Wait()
	}
}

// Next implements [reflector.Watch].
func (w *watch) Next() (reflector.Event[*wire.Object], error) {
	w.source.awaits()
	e, err := w.inner.Next()
	if err == nil && e.Object != nil {
		w.report(e)
		err = w.received(e)
	}
	if slow := w.slowDown(e); err == nil {
		err = slow
	}
	if err != nil {
		err = w.cause(err)
	}
	return e, err
}

// report calls arrived with the version of an event, unless it belongs to a state that is being read.
func (w *watch) report(e reflector.Event[*wire.Object]) {
	if s := w.source; s.arrived != nil && s.turn == nil && e.Type != delta.Bookmark {
		s.arrived(e.Object.Version())
	}
}

// received checks an event with an object before it is applied.
func (w *watch) received(e reflector.Event[*wire.Object]) error {
	if err := w.source.received(w.ctx, e.Object); err != nil {
		return err
	}
	if err := w.source.checkFields(e.Object); err != nil || e.Type == delta.Deleted {
		return err
	}
	return w.source.charge(w.ctx, e.Object)
}

// slowDown waits if the watches of the cluster send more than its limit.
func (w *watch) slowDown(e reflector.Event[*wire.Object]) error {
	if w.source.turn != nil {
		return nil // the state is being read
	}
	n := quota.ObjectOverhead
	if e.Object != nil {
		n += e.Object.Size()
	}
	return w.source.server.watching.Load().Read(w.ctx, n)
}

// Close implements [reflector.Watch].
func (w *watch) Close() error {
	w.end()
	return w.inner.Close()
}

// end cancels the watch, and removes it from its source.
func (w *watch) end() {
	w.cancel()
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	if w.source.open == w {
		w.source.open = nil
	}
}

// replace ends the watch so that it returns io.EOF.
func (w *watch) replace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replaced = true
	w.cancel()
}

// cause returns err, or io.EOF if the watch was replaced.
func (w *watch) cause(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replaced {
		return io.EOF
	}
	return err
}
