// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/fanout"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

// contents maps the keys of objects to their versions and renderings.
type contents map[string]string

func contentOf(o *wire.Object) string {
	render, _ := o.Label("render")
	return fmt.Sprintf("%d/%s", o.Version(), render)
}

// versions returns the contents without the renderings.
func (c contents) versions() map[string]string {
	all := map[string]string{}
	for key, content := range c {
		all[key], _, _ = strings.Cut(content, "/")
	}
	return all
}

func stateOf(s state) contents {
	all := contents{}
	for key, o := range s.Raw() {
		all[key] = contentOf(o)
	}
	return all
}

// newPod returns a pod in namespace n.
func newPod(t *testing.T, name string, version uint64, labels map[string]string) *wire.Object {
	t.Helper()
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	o, err := wire.Encode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, ResourceVersion: strconv.FormatUint(version, 10), Labels: labels,
	}}, wire.Protobuf, kind)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// empty is a source without objects, whose watches do not end.
type empty struct{ version string }

func (e empty) List(
	context.Context, reflector.ListOptions, func(*wire.Object) error,
) (reflector.Page, error) {
	return reflector.Page{Version: e.version}, nil
}
func (empty) Served(context.Context) (bool, error) { return true, nil }
func (empty) Watch(ctx context.Context, _ reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	return silent{ctx}, nil
}

type silent struct{ ctx context.Context }

func (s silent) Next() (reflector.Event[*wire.Object], error) {
	<-s.ctx.Done()
	return reflector.Event[*wire.Object]{}, s.ctx.Err()
}
func (silent) Close() error { return nil }

// podResource is the resource of the feeds.
var podResource = kube.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods")}

// written is a feed and the informer that a test writes to.
type written struct {
	writer   *Writer
	informer *watershed.Informer[*wire.Object]
}

// startFeed returns a feed that begins at a version, without objects.
func startFeed(t *testing.T, version string, window int64) *written {
	w := &written{}
	w.informer = watershed.FromSource(empty{version}, &watershed.SourceOptions[*wire.Object]{
		Window:    1,
		Logger:    slog.New(slog.DiscardHandler),
		Reflector: reflector.Options{ListOnly: true},
		Tap: func(s watershed.Snapshot[*wire.Object], changes []store.Change[*wire.Object], whole bool) {
			w.writer.Apply(s, changes, whole)
		},
	})
	w.writer = NewWriter(&podResource, w.informer.Connection, window)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.informer.Run(ctx) // returns when ctx ends
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if err := w.informer.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// newTestFeed returns a feed whose informer a test writes to. It begins at version 1,
// without objects.
func newTestFeed(t *testing.T, window int64) (*Feed, *watershed.Informer[*wire.Object]) {
	w := startFeed(t, "1", window)
	return w.writer.Feed(), w.informer
}

// upstream is a server, the events that its mirror has received, and the expected states
// of the feed.
type upstream struct {
	t        *testing.T
	rng      *rand.Rand
	feed     *Feed
	informer *watershed.Informer[*wire.Object]

	// The server: its current objects, and all events.
	version uint64
	render  int
	objects map[string]*wire.Object
	events  []happened
	// The mirror's queue: events up to sent, and the resulting objects.
	sent  int
	keys  map[string]*wire.Object
	queue []step
	// The expected feed: the newest state, those before, and the gaps. received is how many
	// events it has received.
	listing  bool
	received int
	now      recorded
	record   []recorded
	gaps     []gap
	lists    int
	// unseen are the gaps that the feed cannot detect.
	unseen []gap
}

type happened struct {
	typ    delta.Type
	object *wire.Object
}

// step is a delta on its way to the mirror, and its effect on the expected states.
type step struct {
	delta delta.Delta[*wire.Object]
	then  func()
}

// recorded is a state that the server had.
type recorded struct {
	version uint64
	state   contents
}

func newUpstream(t *testing.T, rng *rand.Rand, window int64) *upstream {
	u := &upstream{t: t, rng: rng, version: 1, objects: map[string]*wire.Object{}, keys: map[string]*wire.Object{}}
	u.feed, u.informer = newTestFeed(t, window)
	u.now = recorded{1, contents{}}
	u.record = []recorded{u.now}
	return u
}

// podNames are all possible names of pods.
var podNames = []string{"a", "a1", "ab", "b", "b1", "c"}

// happen changes objects on the server, now and then several at one version.
func (u *upstream) happen() {
	u.version += 1 + uint64(u.rng.IntN(2))
	for _, n := range u.rng.Perm(len(podNames))[:max(1, u.rng.IntN(6)-2)] {
		o := newPod(u.t, podNames[n], u.version, map[string]string{"render": strconv.Itoa(u.render)})
		typ := delta.Updated
		if _, there := u.objects[o.Key()]; there && u.rng.IntN(3) == 0 {
			typ = delta.Deleted
			delete(u.objects, o.Key())
		} else {
			u.objects[o.Key()] = o
		}
		u.events = append(u.events, happened{typ, o})
	}
}

// deliver sends some events to the mirror, and then perhaps a bookmark.
func (u *upstream) deliver() {
	n := u.rng.IntN(len(u.events) - u.sent + 1)
	for _, e := range u.events[u.sent : u.sent+n] {
		d := delta.Delta[*wire.Object]{Type: e.typ, Key: e.object.Key(), Object: e.object, Version: e.object.Version()}
		u.keys[d.Key] = e.object
		if e.typ == delta.Deleted {
			delete(u.keys, d.Key)
		}
		u.queue = append(u.queue, step{d, func() {
			state := maps.Clone(u.now.state)
			state[d.Key] = contentOf(d.Object)
			if d.Type == delta.Deleted {
				delete(state, d.Key)
			}
			u.received++
			u.become(recorded{max(u.now.version, d.Version), state})
		}})
	}
	if u.sent += n; u.sent == len(u.events) && u.rng.IntN(2) == 0 {
		version := u.version
		u.queue = append(u.queue, step{delta.Delta[*wire.Object]{Type: delta.Bookmark, Version: version}, func() {
			u.become(recorded{max(u.now.version, version), u.now.state})
		}})
	}
}

func (u *upstream) become(r recorded) {
	u.now = r
	u.record = append(u.record, r)
}

// relist makes the mirror list everything, after some interrupted lists.
func (u *upstream) relist() {
	if u.rng.IntN(4) == 0 {
		u.rerender()
	}
	began := func() { u.listing = true }
	for range u.rng.IntN(3) {
		all := slices.Sorted(maps.Keys(u.objects))
		for _, key := range all[:u.rng.IntN(len(all)+1)] {
			u.keys[key] = u.objects[key]
			u.queue = append(u.queue, step{
				delta.Delta[*wire.Object]{
					Type:    delta.Replaced,
					Listed:  true,
					Key:     key,
					Object:  u.objects[key],
					Version: u.objects[key].Version(),
				},
				began,
			})
		}
		for range u.rng.IntN(3) {
			u.happen()
		}
	}
	state := contents{}
	for _, key := range slices.Sorted(maps.Keys(u.objects)) {
		o := u.objects[key]
		state[key] = contentOf(o)
		u.queue = append(u.queue, step{
			delta.Delta[*wire.Object]{Type: delta.Replaced, Listed: true, Key: key, Object: o, Version: o.Version()},
			began,
		})
	}
	for _, key := range slices.Sorted(maps.Keys(u.keys)) {
		if _, there := u.objects[key]; !there {
			u.queue = append(u.queue, step{
				delta.Delta[*wire.Object]{
					Type: delta.Deleted, Missed: true, Listed: true, Key: key, Object: u.keys[key], Version: u.version,
				},
				began,
			})
		}
	}
	u.sent, u.keys = len(u.events), maps.Clone(u.objects)
	version, sent := u.version, u.sent
	u.queue = append(u.queue, step{delta.Delta[*wire.Object]{
		Type: delta.Bookmark, Listed: true, Version: version,
	}, func() {
		next := recorded{max(version, u.now.version), state}
		// A list may arrive when the mirror has only some of the changes at a version.
		// The feed does not know that a client may have seen all of them elsewhere. On a
		// real server only deletions share a version, and the list reports the rest of
		// those.
		if v := u.now.version; u.received < sent && u.events[u.received].object.Version() == v {
			u.unseen = append(u.unseen, gap{after: v - 1, before: v + 1})
		}
		u.gaps = append(u.gaps, gap{after: u.now.version, before: next.version})
		u.listing, u.received = false, sent
		u.lists++
		u.become(next)
	}})
}

// rerender simulates another release of the server, which encodes the same objects
// differently.
func (u *upstream) rerender() {
	u.render++
	for key, o := range u.objects {
		u.objects[key] = newPod(u.t, o.Name(), o.Version(), map[string]string{"render": strconv.Itoa(u.render)})
	}
}

// flush writes the queue in batches, and checks the feed after each.
func (u *upstream) flush() {
	for len(u.queue) > 0 && !u.t.Failed() {
		n := 1 + u.rng.IntN(len(u.queue))
		var deltas []delta.Delta[*wire.Object]
		for _, s := range u.queue[:n] {
			deltas = append(deltas, s.delta)
		}
		u.informer.Write(deltas...)
		for _, s := range u.queue[:n] {
			s.then()
		}
		u.queue = u.queue[n:]
		now, err := u.feed.Now()
		if err != nil {
			u.t.Fatal(err)
		}
		if got := stateOf(now.State); now.Version != u.now.version || !maps.Equal(got, u.now.state) {
			u.t.Errorf("while listing %t: the feed is %v at %d, the server was %v at %d", u.listing, got, now.Version,
				u.now.state, u.now.version)
		}
	}
}

// lost reports whether the feed cannot know the state at a version.
func (u *upstream) lost(version uint64) bool {
	if g := u.feed.coverage.gapAt(version); g != nil {
		return g.firstRevision < u.feed.log.Stats().After
	}
	return slices.ContainsFunc(u.gaps, func(g gap) bool { return g.after < version && version < g.before }) ||
		version < u.feed.log.Oldest()
}

// at returns the server's state at a version: key and version of each object.
func (u *upstream) at(version uint64) map[string]string {
	state := map[string]string{}
	for _, e := range u.events {
		if e.object.Version() > version {
			break
		}
		state[e.object.Key()] = fmt.Sprint(e.object.Version())
		if e.typ == delta.Deleted {
			delete(state, e.object.Key())
		}
	}
	return state
}

// client watches, stops, and resumes at the last version that it saw.
type client struct {
	u       *upstream
	state   contents
	seen    uint64
	cursor  *fanout.Cursor[*wire.Object] // nil while it does not watch
	batch   []store.Change[*wire.Object]
	resumed int
	expired int
}

// list reads the newest state.
func (c *client) list() {
	m, err := c.u.feed.Now()
	if err != nil {
		c.u.t.Fatal(err)
	}
	c.state, c.seen = stateOf(m.State), m.Version
	c.follow(m.Revision)
}

func (c *client) follow(revision uint64) {
	var err error
	if c.cursor, err = c.u.feed.Cursor(revision, fanout.Everything()); err != nil {
		c.u.t.Fatal(err)
	}
	c.batch = nil
}

// resume resumes at the last version that the client saw.
func (c *client) resume() {
	revision, oldest, err := c.u.feed.Since(c.seen)
	switch {
	case err == nil:
		c.resumed++
		c.follow(revision)
	case !errors.Is(err, ErrExpired) || oldest <= c.seen:
		c.u.t.Errorf("after version %d: %v, the oldest is %d", c.seen, err, oldest)
	default:
		if !c.u.lost(c.seen) && c.seen >= 1 {
			c.u.t.Errorf("after version %d: %v, but all is there", c.seen, err)
		}
		c.expired++
		c.list()
	}
}

// read reads n events, or all if n is negative.
func (c *client) read(n int) {
	if c.cursor == nil {
		c.resume()
	}
	for ; n != 0; n-- {
		if len(c.batch) == 0 {
			var err error
			if c.batch, err = c.cursor.TryNext(); errors.Is(err, ErrExpired) {
				c.expired++
				c.list() // too slow
				continue
			} else if err != nil {
				c.u.t.Fatal(err)
			}
		}
		if len(c.batch) == 0 {
			c.bookmark()
			return
		}
		change := &c.batch[0]
		c.batch = c.batch[1:]
		c.state[change.Key], c.seen = contentOf(change.New), change.New.Version()
		if change.Type == delta.Deleted {
			delete(c.state, change.Key)
			if change.Missed {
				c.seen = change.Version
			}
		}
	}
}

// bookmark checks the state of a client that has read everything, and sometimes passes it
// the version.
func (c *client) bookmark() {
	if !maps.Equal(c.state, c.u.now.state) {
		c.u.t.Errorf("a client that saw version %d knows %v, there is %v at %d", c.seen, c.state, c.u.now.state,
			c.u.now.version)
	}
	if c.u.rng.IntN(2) == 0 {
		c.seen = c.u.now.version
	}
}

// visit resumes a client that saw a version elsewhere: at the server, or at another copy
// of it.
func (u *upstream) visit() {
	v := 1 + u.rng.Uint64N(u.now.version)
	if u.received < len(u.events) && u.events[u.received].object.Version() <= v {
		return // the copy has only some of the changes at the version
	}
	if slices.ContainsFunc(u.unseen, func(g gap) bool { return g.after < v && v < g.before }) {
		return
	}
	revision, _, err := u.feed.Since(v)
	if err != nil {
		if !u.lost(v) {
			u.t.Errorf("after version %d: %v, but all is there", v, err)
		}
		return
	}
	knows := u.at(v)
	cursor, err := u.feed.Cursor(revision, fanout.Everything())
	if err != nil {
		u.t.Fatal(err)
	}
	for batch, err := cursor.TryNext(); len(batch) > 0 || err != nil; batch, err = cursor.TryNext() {
		if err != nil {
			u.t.Fatal(err)
		}
		for i := range batch {
			c := &batch[i]
			knows[c.Key] = fmt.Sprint(c.New.Version())
			if c.Type == delta.Deleted {
				delete(knows, c.Key)
			}
		}
	}
	if want := u.now.state.versions(); !maps.Equal(knows, want) {
		u.t.Errorf("a client that saw version %d elsewhere knows %v, there is %v at %d", v, knows, want, u.now.version)
	}
}
