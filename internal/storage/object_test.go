// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package storage

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	rand "math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/watershed-project/watershed/internal/objectpack"
	"github.com/watershed-project/watershed/internal/storage/format"
)

// histories makes random histories of a mirror, in several processes, next to another mirror.
type histories struct {
	t      *testing.T
	rand   *rand.Rand
	packer *objectpack.Packer
	path   string
	opts   *Options
	id     Identity
	w      *world
	other  *world
	// damages means that files are damaged at random between the processes. Otherwise only the
	// payloads of index frames are, if indexes is set.
	damages, indexes bool
	// drops means that batches are dropped at random. Otherwise the server is restored.
	drops  bool
	killed bool
	what   string
}

func newHistory(t *testing.T, seed uint64, packer *objectpack.Packer) *histories {
	h := &histories{
		t:    t,
		rand: rand.New(rand.NewPCG(seed, 11)),
		path: t.TempDir(),
		opts: &Options{Keys: testKeys(t), Window: time.Hour},
		id:   identify("configmaps"),
	}
	h.w, h.other = newWorld(t, nil, seed), newWorld(t, nil, seed+1)
	h.w.keys = []int{2, 6, 20, 60}[h.rand.IntN(4)]
	if h.rand.IntN(3) == 0 {
		h.id = identify("secrets")
	}
	if h.rand.IntN(2) == 0 {
		h.packer, h.w.body = packer, 150 // so that objects are packed
	}
	h.drops = h.rand.IntN(2) == 0
	switch h.rand.IntN(3) {
	case 0:
		h.damages = true
	case 1:
		h.indexes = true
	}
	return h
}

// process runs a process that ends in order, or is killed.
func (h *histories) process(last bool) {
	d := openDirectory(h.t, h.path, h.opts)
	d.limits.indexed, d.limits.index = []int64{300, 700, 2000, 1 << 20}[h.rand.IntN(4)],
		[]int64{200, 1000, 1 << 20}[h.rand.IntN(3)]
	d.limits.segment = []int64{2 << 10, 4 << 10, 16 << 10}[h.rand.IntN(3)]
	d.files.Fault = func(operation, _ string, size int) (int, error) {
		if operation == "sync" {
			return 0, nil // it would take most of the time
		}
		return size, nil
	}
	for _, w := range []*world{h.w, h.other} {
		id := h.id
		if w == h.other {
			id = identify("pods")
		}
		w.mirror = openMirror(h.t, d, id, MirrorOptions{Packer: h.packer})
		if s, err := w.mirror.Load(0); err == nil {
			w.resume(s)
			w.bookmark()
		} else {
			w.reset()
			w.fill(w.keys)
		}
	}
	for range h.rand.IntN(15) {
		switch h.rand.IntN(24) {
		case 0, 7:
			h.w.want()
		case 1:
			if !h.damages && !h.drops { // otherwise states with lower versions may be lost
				h.w.goBack(h.w.version - uint64(1+h.rand.IntN(30)))
			}
		case 2:
			if h.drops {
				d.ledger.drop(h.w.mirror, nil, time.Time{})
			}
		case 3:
			maintain(d)
		case 4, 5, 6:
			h.other.random()
		}
		h.w.random()
		if h.rand.IntN(3) > 0 {
			step(d)
		}
	}
	killed := h.rand.IntN(3) == 0
	h.killed = h.killed || killed
	if killed && !last {
		if h.rand.IntN(2) == 0 {
			h.w.relist(2, false)
			step(d)
		}
	} else {
		h.w.bookmark()
		step(d)
	}
	if killed && !h.drops {
		step(d) // or else a version may be that of a state that was not written
	}
	if !killed {
		finish(h.t, d)
		return
	}
	must(h.t, d.Close())
	for _, c := range d.ledger.openClusters() {
		c.exchange(nil)
	}
}

// damage damages the files between two processes.
func (h *histories) damage() {
	switch {
	case h.damages && h.rand.IntN(2) == 0:
		h.what += ", " + damage(h.t, h.path, h.rand)
	case h.indexes:
		for name, content := range only(allFiles(h.t, h.path), format.SegmentPrefix) {
			number, changed := uint64(0), false
			if _, err := fmt.Sscanf(name[len(name)-16:], "%x", &number); err != nil {
				h.t.Fatal(err)
			}
			for at := int64(format.HeadSize); ; {
				f, next, _ := format.ParseFrame(content[at:], number, at)
				if next == 0 {
					break
				}
				if f.Kind == format.IndexFrame && h.rand.IntN(3) == 0 {
					f.Payload[h.rand.IntN(len(f.Payload))] ^= byte(1 + h.rand.IntN(255))
					changed = true
				}
				at = next
			}
			if changed {
				must(h.t, os.WriteFile(name, content, 0o600))
			}
		}
	}
}

// answer is what a read has returned, for comparisons.
type answer struct {
	text  string
	state *State
	err   error
}

func answerOf(s *State, err error) answer {
	if err != nil {
		return answer{text: err.Error(), err: err}
	}
	a := answer{text: fmt.Sprintf("version %d of %v, last %v:", s.Version, s.Time, s.Last), state: s}
	for _, o := range s.Objects {
		a.text += " " + string(o.Bytes())
	}
	return a
}

// compareAt compares the state of an object at a time with and without the index.
func (h *histories) compareAt(c *Cluster, key string, at time.Time) error {
	with := answerOf(c.ObjectAt(h.id, at, key))
	without := answerOf(c.AtKeys(h.id, Moment{Time: at}, func(k string) bool { return k == key }))
	if with.text != without.text && (!h.damages || with.err != nil && without.err == nil) {
		return fmt.Errorf("%s at %v: with the index %s\nwithout %s", key, at, with.text, without.text)
	}
	if with.err != nil {
		return nil
	}
	objects := map[string]string{}
	for _, o := range with.state.Objects {
		objects[o.Key()] = string(o.Bytes())
	}
	for _, p := range h.w.past {
		want := maps.Clone(p.objects)
		maps.DeleteFunc(want, func(k, _ string) bool { return k != key })
		if p.version == with.state.Version && p.time.Equal(with.state.Time) && maps.Equal(want, objects) {
			return nil
		}
	}
	return fmt.Errorf("%s at %v: %s was no state", key, at, with.text)
}

// happened is a change or an error in a history.
type happened struct {
	text string
	err  error
	event
}

// read returns the history of an object.
func (h *histories) read(c *Cluster, key string, since, until time.Time, index bool) (all []happened) {
	entries := c.ObjectHistory(h.id, key, since, until)
	if !index {
		entries = c.History(since, func(id Identity) bool { return id == h.id })
	}
	for entry, err := range entries {
		gap := (*GapError)(nil)
		if !until.IsZero() && errors.As(err, &gap) && gap.Since.After(until) {
			break
		}
		if err != nil {
			all = append(all, happened{text: err.Error(), err: err})
			continue
		}
		if !until.IsZero() && entry.Time.After(until) {
			break
		}
		for _, x := range entry.Changes {
			if x.Key == key {
				e := event{
					batch: entry.Version, time: entry.Time, change: x.Type, key: key, text: string(x.Object.Bytes()),
				}
				all = append(all, happened{
					text: fmt.Sprintf("%v listed %v missed %v version %d by %s", e, entry.Listed, x.Missed, x.Version,
						x.Manager),
					event: e,
				})
			}
		}
	}
	return all
}

// compareHistory compares the history of an object with and without the index, and with
// everything that has happened.
func (h *histories) compareHistory(c *Cluster, key string, since, until time.Time) error {
	with, without := h.read(c, key, since, until, true), h.read(c, key, since, until, false)
	texts := func(all []happened) (list []string) {
		for _, x := range all {
			list = append(list, x.text)
		}
		return list
	}
	if a, b := texts(with), texts(without); !h.damages && !slices.Equal(a, b) {
		return fmt.Errorf("%s since %v: with the index %q\nwithout %q", key, since, a, b)
	}
	// No change is missing, except where there is an error.
	var want []event
	for _, e := range h.w.events {
		if e.key == key {
			want = append(want, e)
		}
	}
	at, missing := 0, true // before the first one there are others
	for _, x := range with {
		if x.err != nil {
			missing = true
			continue
		}
		n := slices.IndexFunc(want[at:], func(e event) bool {
			return e.change == x.change && e.text == x.event.text &&
				(e.batch == 0 || e.batch == x.batch && e.time.Equal(x.time))
		})
		if n < 0 || !missing && slices.ContainsFunc(want[at:at+n], func(e event) bool { return !e.lost }) {
			return fmt.Errorf("%s since %v: %d of %d changes are missing before %q of\n%q", key, since, n, len(want)-at,
				x.text, texts(with))
		}
		at, missing = at+n+1, false
	}
	if n := slices.IndexFunc(want[at:], func(e event) bool {
		// The record of a relist has the time of its end.
		return !e.lost && e.time.After(since) && (until.IsZero() || e.batch != 0 && !e.time.After(until))
	}); n >= 0 && !missing && !h.damages {
		return fmt.Errorf("%s since %v: %+v is missing at the end of\n%q", key, since, want[at+n], texts(with))
	}
	return nil
}

// compare compares random reads.
func (h *histories) compare() error {
	d := openDirectory(h.t, h.path, h.opts)
	defer d.Close()
	c := newCluster(d, "east")
	for range 6 {
		key := fmt.Sprintf("shop/item-%04d", h.rand.IntN(h.w.keys+1))
		for range 4 {
			p := h.w.past[h.rand.IntN(len(h.w.past))]
			if err := h.compareAt(c, key, p.time.Add(-time.Duration(h.rand.IntN(2)))); err != nil {
				return err
			}
		}
		since, until := h.w.past[h.rand.IntN(len(h.w.past))].time, time.Time{}
		switch h.rand.IntN(4) {
		case 0:
			since = time.Time{}
		case 1:
			until = since.Add(h.w.past[len(h.w.past)-1].time.Sub(since) / 2)
		}
		if err := h.compareHistory(c, key, since, until); err != nil {
			return err
		}
	}
	if h.damages || h.indexes {
		return nil
	}
	return indexed(c, h.id, h.killed)
}

// indexed returns an error if the index of a segment is not used. A segment of a killed process may have none.
func indexed(c *Cluster, id Identity, killed bool) error {
	all, err := format.List(c.folder)
	if err != nil {
		return err
	}
	for i, number := range all.Segments {
		length := int64(-1)
		if i+1 < len(all.Segments) {
			next, err := format.ReadHeader(c.folder, number+1)
			if err != nil {
				return err
			}
			length = next.Previous
		}
		info, err := os.Stat(c.folder + "/" + format.SegmentName(number))
		if err != nil {
			return err
		}
		if err := c.past.CheckIndex(id, number, length); err != nil && info.Size() > 1500 && !killed {
			return fmt.Errorf("segment %d of %d: %w", number, len(all.Segments), err)
		}
	}
	return nil
}

// objectHistories is how many histories TestObject_random makes: make files makes 2,000.
var objectHistories = flag.Int("object.histories", 100, "how many histories TestObject_random makes")

// TestObject_random compares reads of one object by the index with reads of everything, and with
// what has happened, in random histories with restarts, kills, gaps, relists, restores and
// damage.
func TestObject_random(t *testing.T) {
	seed, runs := uint64(time.Now().UnixNano()), *objectHistories
	if testing.Short() {
		runs = min(runs, 40)
	}
	packer := trainedPacker(t)
	for n := range runs {
		seed := seed + uint64(n)
		h := newHistory(t, seed, packer)
		for process := range 4 {
			h.process(process == 3)
			h.damage()
		}
		if err := h.compare(); err != nil {
			t.Fatalf("seed %d, damaged: %v %s: %v", seed, h.damages, h.what, err)
		}
		if err := os.RemoveAll(h.path); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d histories from seed %d on", runs, seed)
}

// TestHistory_unreadableHeader reads the history when the last segment is empty, as a process
// leaves it that was killed when it had created it, or has a damaged header: the changes of the
// segment before are not left out.
func TestHistory_unreadableHeader(t *testing.T) {
	path := t.TempDir()
	w := storeWorld(t, path, "configmaps", 3, 6)
	d := openDirectory(t, path, nil)
	w.mirror = openMirror(t, d, identify("configmaps"), MirrorOptions{})
	s, err := w.mirror.Load(0)
	must(t, err)
	w.resume(s)
	for range 10 {
		w.change(3)
		step(d)
	}
	finish(t, d)
	c := newCluster(d, "east")
	all, err := format.List(c.folder)
	must(t, err)
	changes := func() (n int) {
		for entry := range c.History(time.Time{}, func(Identity) bool { return true }) {
			n += len(entry.Changes)
		}
		return n
	}
	want := changes()
	next := c.folder + "/" + format.SegmentName(all.Segments[len(all.Segments)-1]+1)
	for _, content := range [][]byte{
		nil, append(format.NewHead(format.LogMagic, format.Version), make([]byte, 100)...),
	} {
		must(t, os.WriteFile(next, content, 0o600))
		if got := changes(); got != want || want < 10 {
			t.Errorf("%d changes, and %d without the last segment", got, want)
		}
	}
}
