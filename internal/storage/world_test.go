// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	rand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/internal/pack"
	"github.com/watershed-project/watershed/internal/storage/format"
	"github.com/watershed-project/watershed/store"
	"github.com/watershed-project/watershed/wire"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// identify returns the identity of a resource.
func identify(resource string) Identity {
	return Identity{
		Cluster:   "uid-1",
		Version:   "v1",
		Resource:  resource,
		Kind:      "ConfigMap",
		Encoding:  "JSON",
		Transform: "drop:managedFields",
	}
}

// truth has every state that a server had, by its version: the objects by key.
type truth map[uint64]map[string]string

// check returns an error if a state is not one that the server had.
func (t truth) check(s *State) error {
	want, ok := t[s.Version]
	if !ok {
		return fmt.Errorf("there was no version %d", s.Version)
	}
	got := map[string]string{}
	last := ""
	for _, o := range s.Objects {
		if o.Key() <= last {
			return fmt.Errorf("%s follows %s", o.Key(), last)
		}
		last = o.Key()
		got[last] = string(o.Bytes())
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("version %d has %d objects and had %d, or other ones", s.Version, len(got), len(want))
	}
	return t.checkWindow(s)
}

// checkWindow applies the records of a state and compares each state between, and each old
// state of an object.
func (t truth) checkWindow(s *State) error {
	now, ok := t[s.After]
	if !ok {
		return fmt.Errorf("the window begins after version %d, which did not exist", s.After)
	}
	now = maps.Clone(now)
	version := s.After
	for _, r := range s.Records {
		for _, c := range r.Changes {
			if err := checkOld(now, &c); err != nil {
				return fmt.Errorf("record of version %d: %w", r.Version, err)
			}
			if c.Type == delta.Deleted {
				delete(now, c.Key)
			} else {
				now[c.Key] = string(c.Object.Bytes())
			}
		}
		if version = r.Version; !maps.Equal(now, t[version]) {
			return fmt.Errorf("the window has another state at version %d", version)
		}
	}
	if version != s.Version {
		return fmt.Errorf("the window ends at %d, and the state is %d", version, s.Version)
	}
	return nil
}

// checkOld returns an error if the old state of a change is not that of the state before.
func checkOld(now map[string]string, c *Change) error {
	want, existed := now[c.Key]
	switch {
	case existed != (c.Old != nil) || existed != (c.Type != delta.Added):
		return fmt.Errorf("%v %s: the object existed: %v, old state: %v", c.Type, c.Key, existed, c.Old)
	case existed && string(c.Old.Bytes()) != want:
		return fmt.Errorf("%v %s: the old state is %s instead of %s", c.Type, c.Key, c.Old.Bytes(), want)
	}
	return nil
}

// pastState is a state that a mirror had. An inner one is in the middle of a batch: the
// server had it, and the mirror did not. One after a relist is relisted: the server may have
// had others before it.
type pastState struct {
	version         uint64
	time            time.Time
	objects         map[string]string
	inner, relisted bool
}

// world is a mirror with its store and its truth.
type world struct {
	tb    testing.TB
	rand  *rand.Rand
	store *store.Store[*wire.Object]
	truth truth
	// past are the states in their order. now returns the time of the next one.
	past    []pastState
	now     func() time.Time
	version uint64
	mirror  *Mirror
	keys    int
	body    int
	texts   map[string]string // the last ones by key
	// before is called with each state of the server before it is appended. It may be nil.
	before func(version uint64, objects map[string]string)
	// relisted means that the next state is the end of a relist.
	relisted bool
	// events are the changes of all batches in their order.
	events []event
}

// event is a change of an object, in a batch with a version and a time. The version of a batch
// in the middle of a relist is 0, and a batch without changes has an event without a key.
type event struct {
	batch  uint64
	time   time.Time
	change delta.Type
	key    string
	text   string // of the object
	// lost means that the next process did not load a state with the event. The files may have
	// it all the same.
	lost bool
}

// put appends a batch and records its changes.
func (w *world) put(b Batch) {
	e := event{batch: b.State.Version(), time: b.Time}
	if b.Open {
		e.batch = 0
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		e.change, e.key, e.text = c.Type, c.Key, string(c.New.Bytes())
		w.events = append(w.events, e)
	}
	if e.key == "" {
		w.events = append(w.events, e)
	}
	w.pack(&b)
	w.mirror.Append(b)
}

// pack packs some objects of a batch, if the mirror has a packer, and prepares others. Sometimes it
// settles all objects.
func (w *world) pack(b *Batch) {
	p := w.mirror.opts.Packer
	if p == nil {
		return
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		var packed *pack.Body
		switch w.rand.IntN(4) {
		case 0:
		case 1:
			var before *pack.Body
			if c.Old != nil {
				before = c.Old.Cell().Body.Load()
			}
			packed = p.Prepare(c.New, before)
		default:
			p.Pack(c.New, c.Old)
		}
		b.Packed = append(b.Packed, packed)
	}
	if w.rand.IntN(8) == 0 {
		var last *wire.Object
		for _, o := range w.store.All() {
			p.Settle(o, last)
			last = o
		}
	}
}

func newWorld(tb testing.TB, m *Mirror, seed uint64) *world {
	w := &world{
		tb:      tb,
		rand:    rand.New(rand.NewPCG(seed, 7)),
		truth:   truth{},
		mirror:  m,
		keys:    12,
		body:    40,
		version: 100,
		now:     time.Now,
		texts:   map[string]string{},
	}
	w.reset()
	return w
}

func (w *world) reset() {
	w.relisted = true
	w.store = store.New((*wire.Object).Key, &store.Options[*wire.Object]{Same: wire.Same})
}

// remember records the current state as one that the server had.
func (w *world) remember() {
	now := map[string]string{}
	for key, o := range w.store.All() {
		now[key] = string(o.Bytes())
	}
	version := w.store.Snapshot().Version()
	if w.before != nil {
		w.before(version, now)
	}
	w.truth[version] = now
	w.past = append(w.past, pastState{version: version, time: w.now(), objects: now, relisted: w.relisted})
	w.relisted = false
}

// inner returns the states in the middle of a batch of deltas.
func (w *world) inner(deltas []delta.Delta[*wire.Object]) (all []pastState) {
	now := map[string]string{}
	for key, o := range w.store.All() {
		now[key] = string(o.Bytes())
	}
	for _, d := range deltas[:len(deltas)-1] {
		if _, exists := now[d.Key]; !exists && d.Type == delta.Deleted {
			continue // nothing changes
		}
		now = maps.Clone(now)
		if now[d.Key] = string(d.Object.Bytes()); d.Type == delta.Deleted {
			delete(now, d.Key)
		}
		all = append(all, pastState{version: d.Version, objects: now, inner: true})
		if w.before != nil {
			w.before(d.Version, now)
		}
	}
	return all
}

// append appends the batch that has led to the remembered state.
func (w *world) append(b Batch) {
	b.State, b.Time = w.store.Snapshot(), w.past[len(w.past)-1].time
	w.put(b)
}

func newObject(tb testing.TB, key string, version uint64, text string) *wire.Object {
	tb.Helper()
	return newObjectOf(tb, "v1", key, version, text)
}

// object returns an object of the mirror's API version, v1 if it has none, at the newest
// version of the server.
func (w *world) object(key string) *wire.Object {
	text := w.text()
	if last := w.texts[key]; w.mirror.opts.Packer != nil && len(last) > 1 && w.rand.IntN(4) > 0 {
		text = last[:len(last)/2] + text[:1] + last[len(last)/2+1:] // similar to the last state
	}
	w.texts[key] = text
	return newObjectOf(w.tb, cmp.Or(w.mirror.id.Version, "v1"), key, w.version, text)
}

func newObjectOf(tb testing.TB, apiVersion, key string, version uint64, text string) *wire.Object {
	tb.Helper()
	namespace, name, _ := strings.Cut(key, "/")
	raw := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":%q,"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},"data":{"text":%q}}`,
		apiVersion, name, namespace, version, name, text)
	o, err := wire.NewObject([]byte(raw), wire.JSON, nil)
	must(tb, err)
	return o
}

func (w *world) text() string {
	b := make([]byte, w.body/2+w.rand.IntN(w.body))
	for i := range b {
		b[i] = 'a' + byte(w.rand.IntN(26))
	}
	return string(b)
}

// deltas returns random changes, each with its own version.
func (w *world) deltas(n int, t delta.Type) []delta.Delta[*wire.Object] {
	var all []delta.Delta[*wire.Object]
	for range n {
		w.version += 1 + uint64(w.rand.IntN(3))
		key := fmt.Sprintf("shop/item-%04d", w.rand.IntN(w.keys))
		d := delta.Delta[*wire.Object]{Type: t, Key: key, Object: w.object(key), Version: w.version}
		if w.rand.IntN(4) == 0 {
			d.Type = delta.Deleted
		}
		all = append(all, d)
	}
	return all
}

// fill stores n objects without appending them: the first list.
func (w *world) fill(n int) {
	var all []delta.Delta[*wire.Object]
	for i := range n {
		w.version++
		key := fmt.Sprintf("shop/item-%04d", i)
		all = append(all, delta.Delta[*wire.Object]{
			Type: delta.Replaced, Key: key, Object: w.object(key), Version: w.version,
		})
	}
	w.store.Apply(all)
	w.bookmark()
}

// bookmark appends a batch without changes.
func (w *world) bookmark() {
	w.version++
	w.store.Apply([]delta.Delta[*wire.Object]{{Type: delta.Bookmark, Version: w.version}})
	w.remember()
	w.append(Batch{})
}

// change appends a batch of random changes.
func (w *world) change(n int) {
	deltas := w.deltas(n, delta.Updated)
	inner := w.inner(deltas)
	changes := w.store.Apply(deltas)
	w.remember()
	last := w.past[len(w.past)-1]
	for i := range inner {
		inner[i].time = last.time
	}
	w.past = append(append(w.past[:len(w.past)-1], inner...), last)
	managers := make([]string, len(changes))
	for i := range managers {
		managers[i] = "kubelet"
	}
	w.append(Batch{Changes: changes, Managers: managers})
}

// relist appends parts of a relist, and its end if it is complete.
func (w *world) relist(parts int, complete bool) {
	for range parts {
		w.put(Batch{
			Changes: w.store.Apply(w.deltas(2, delta.Replaced)), State: w.store.Snapshot(), Open: true, Time: w.now(),
		})
	}
	w.relisted = true
	if complete {
		w.bookmark()
	}
}

// random appends something.
func (w *world) random() {
	switch w.rand.IntN(8) {
	case 0:
		w.bookmark()
	case 1:
		w.relist(1+w.rand.IntN(3), true)
	case 2:
		w.change(10 + w.rand.IntN(10)) // several frames
	default:
		w.change(1 + w.rand.IntN(4))
	}
}

// resume continues with a loaded state, as a new process would. Later states were not
// written, or are lost.
func (w *world) resume(s *State) {
	for len(w.past) > 0 && w.past[len(w.past)-1].version != s.Version {
		w.past = w.past[:len(w.past)-1]
	}
	for n := len(w.events) - 1; n >= 0 && w.events[n].batch != s.Version; n-- {
		w.events[n].lost = true
	}
	w.reset()
	w.relisted = false
	_, err := w.store.Replace(s.Objects, s.Version)
	must(w.tb, err)
}

// openDirectory opens a directory with small limits. It does not run.
func openDirectory(tb testing.TB, path string, opts *Options) *Directory {
	tb.Helper()
	d, err := Open(path, *cmp.Or(opts, &Options{}))
	must(tb, err)
	tb.Cleanup(func() { d.Close() })
	d.limits = limits{
		chunk: 1 << 10, segment: 4 << 10, indexed: 700, index: 300, minLog: 1 << 10, replay: 64 << 10,
		window: time.Hour,
		delay:  time.Millisecond, syncEvery: 5 * time.Millisecond, maintainEvery: 20 * time.Millisecond,
		hold:     200 * time.Millisecond,
		minRetry: time.Millisecond, maxRetry: 20 * time.Millisecond,
	}
	return d
}

// step writes everything that is appended, as Run would.
func step(d *Directory) { stepAt(d, time.Now()) }

func stepAt(d *Directory, now time.Time) {
	d.ledger.report(d.dictionaries.WriteWanted())
	for range 3 {
		d.round(now)
		select {
		case j := <-d.jobs:
			name := format.SnapshotName(j.mirror.digest, j.after)
			if err := d.writeSnapshot(j, name, func(time.Duration) {}); err != nil {
				d.stateFailed(j, err)
			} else {
				d.ledger.stateWritten(j, name)
			}
		default:
		}
	}
}

// finish ends all segments, as the end of Run does.
func finish(tb testing.TB, d *Directory) {
	tb.Helper()
	for _, c := range d.ledger.openClusters() {
		must(tb, c.log.finish(c))
	}
	must(tb, d.Close())
}

// storeWorld stores some objects of a resource in a new directory, and closes it.
func storeWorld(tb testing.TB, path, resource string, seed uint64, objects int) *world {
	tb.Helper()
	d := openDirectory(tb, path, nil)
	w := newWorld(tb, openMirror(tb, d, identify(resource), MirrorOptions{}), seed)
	w.fill(objects)
	step(d)
	finish(tb, d)
	return w
}

func openMirror(tb testing.TB, d *Directory, id Identity, opts MirrorOptions) *Mirror {
	tb.Helper()
	m, err := d.Cluster("east").Mirror(id, opts)
	must(tb, err)
	return m
}

// load loads a mirror of a copy of a directory, as the next process would.
func load(tb testing.TB, path string, id Identity, opts *Options, mirror MirrorOptions) (*State, error) {
	tb.Helper()
	d, err := Open(path, *cmp.Or(opts, &Options{}))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	m, err := d.Cluster("east").Mirror(id, mirror)
	must(tb, err)
	s, err := m.Load(1 << 20)
	if r := (*Rejection)(nil); err != nil && !errors.As(err, &r) {
		tb.Fatalf("%v is not a rejection", err)
	}
	return s, err
}

// allFiles returns the files below a path, with their content.
func allFiles(tb testing.TB, path string) map[string][]byte {
	tb.Helper()
	all := map[string][]byte{}
	must(tb, filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[name], err = os.ReadFile(name)
		}
		return err
	}))
	return all
}

// only returns the files whose names contain a text.
func only(all map[string][]byte, text string) map[string][]byte {
	some := map[string][]byte{}
	for name, b := range all {
		if strings.Contains(filepath.Base(name), text) {
			some[name] = b
		}
	}
	return some
}

// allFilesLenient returns the files of a directory that is being written.
func allFilesLenient(path string) map[string][]byte {
	all := map[string][]byte{}
	_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if b, err := os.ReadFile(name); err == nil {
				all[name] = b
			}
		}
		return nil
	})
	return all
}

// same returns an error if a state differs from objects.
func (t truth) same(objects map[string]string, version uint64) error {
	if !maps.Equal(t[version], objects) {
		return fmt.Errorf("version %d has %d objects instead of %d, or other ones", version, len(t[version]),
			len(objects))
	}
	return nil
}
