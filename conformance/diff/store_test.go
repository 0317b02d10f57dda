// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/store"
)

// storeKeys have a namespace that is a prefix of another, and a key without one.
var storeKeys = []string{"a/1", "a/2", "ab/1", "ab/2", "b/1", "c"}

var podTags = []string{"red", "big", "old"}

// The functions of the indexes, in client-go's form. Values of the last are numbers on
// our side.
var indexers = cache.Indexers{
	"namespace": func(obj any) ([]string, error) { return []string{obj.(*pod).Namespace}, nil },
	"tag":       func(obj any) ([]string, error) { return obj.(*pod).Tags, nil },
	"rest":      func(obj any) ([]string, error) { return []string{strconv.Itoa(obj.(*pod).Value % 3)}, nil },
}

// stores is a store of each side with the same indexes.
type stores struct {
	*sequence
	ours      *store.Store[*pod]
	theirs    cache.Indexer
	namespace *store.Index[*pod, string]
	tag       *store.Index[*pod, string]
	rest      *store.Index[*pod, int]
	value     int
	moments   []moment
}

// moment is a snapshot of ours, with the indexes at that time, and client-go's content
// when it was taken.
type moment struct {
	snapshot *store.Snapshot[*pod]
	indexes  stores
	view     string
	pods     map[string]*pod
}

// TestStore writes the same to both stores, and compares them, and old snapshots, in
// every possible way.
func TestStore(t *testing.T) {
	playAll(t, 4000, func(s *sequence) {
		x := &stores{sequence: s, ours: store.New(podKey, nil), theirs: cache.NewIndexer(podKeyFunc, cache.Indexers{})}
		for range 10 + s.IntN(30) {
			x.write()
			x.compare()
			if s.chance(8) {
				x.moments = append(x.moments, moment{x.ours.Snapshot(), *x, x.theirView(), x.theirPods()})
			}
		}
		x.compareMoments()
	})
}

func (x *stores) pod() *pod {
	x.value++
	p := newPod(storeKeys[x.IntN(len(storeKeys))], x.value)
	for range x.IntN(4) { // sometimes the same twice
		p.Tags = append(p.Tags, podTags[x.IntN(len(podTags))])
	}
	return p
}

func (x *stores) write() {
	switch op := x.IntN(16); {
	case op < 4:
		p := x.pod()
		if x.chance(15) {
			p.Namespace, p.Name = "", ""
		}
		x.step("Put %v", p)
		theirs := x.theirs.Add
		if x.chance(2) {
			theirs = x.theirs.Update
		}
		x.check("error", kind(x.ours.Put(p)), kind(theirs(p)))
	case op < 7:
		p := x.pod()
		x.step("Delete %s", podKey(p))
		_, had, _ := x.theirs.Get(p)
		x.check("error", "none", kind(x.theirs.Delete(p)))
		x.check("Delete", strconv.FormatBool(x.ours.Delete(podKey(p))), strconv.FormatBool(had))
	case op < 11:
		x.apply()
	case op < 13:
		x.replace()
	default:
		x.index()
	}
}

// apply applies a batch to ours, and the same changes one by one to client-go.
func (x *stores) apply() {
	var deltas delta.Deltas[*pod]
	for range 1 + x.IntN(4) {
		p := x.pod()
		deltas = append(deltas, delta.Delta[*pod]{
			Type: delta.Added + delta.Type(x.IntN(int(delta.Replaced))), Key: podKey(p), Object: p,
			Version: podVersion(p),
		})
	}
	x.step("Apply %s", show(deltas))
	revision := x.ours.Snapshot().Revision()
	var want []store.Change[*pod]
	for _, d := range deltas {
		old, had, _ := x.theirs.Get(d.Object)
		c := store.Change[*pod]{Type: delta.Added, Key: d.Key, New: d.Object}
		if had {
			c.Type, c.Old = delta.Updated, old.(*pod)
		}
		if d.Type == delta.Deleted {
			x.check("error", "none", kind(x.theirs.Delete(d.Object)))
			c.Type = delta.Deleted
			if !had {
				continue
			}
		} else {
			x.check("error", "none", kind(x.theirs.Update(d.Object)))
		}
		want = append(want, c)
	}
	x.checkChanges(x.ours.Apply(deltas), want, revision)
}

func (x *stores) replace() {
	var list []*pod
	for range x.IntN(6) { // sometimes the same key twice
		list = append(list, x.pod())
	}
	if x.chance(8) {
		list = append(list, newPod("", 0))
	}
	x.step("Replace %v", list)
	before, revision := x.theirPods(), x.ours.Snapshot().Revision()
	theirErr := x.theirs.Replace(anyOf(list), "")
	changes, ourErr := x.ours.Replace(list, 0)
	x.check("error", kind(ourErr), kind(theirErr))
	if theirErr != nil {
		x.check("changes", strconv.Itoa(len(changes)), "0")
		return
	}
	var want []store.Change[*pod]
	for _, p := range list {
		c := store.Change[*pod]{Type: delta.Added, Key: podKey(p), New: p}
		if old, ok := before[c.Key]; ok {
			c.Type, c.Old = delta.Updated, old
		}
		before[c.Key] = p
		want = append(want, c)
	}
	for _, key := range storeKeys {
		_, kept, _ := x.theirs.GetByKey(key)
		if old, had := before[key]; had && !kept {
			want = append(want, store.Change[*pod]{Type: delta.Deleted, Missed: true, Key: key, Old: old, New: old})
		}
	}
	x.checkChanges(changes, want, revision)
}

func (x *stores) checkChanges(ours, want []store.Change[*pod], revision uint64) {
	text := func(changes []store.Change[*pod]) string {
		var words []string
		for _, c := range changes {
			words = append(words, fmt.Sprintf("%s %s %v → %v missed %v", c.Type, c.Key, c.Old, c.New, c.Missed))
		}
		return strings.Join(words, "; ")
	}
	x.check("changes", text(ours), text(want))
	for _, c := range ours {
		revision++
		x.check("revision", strconv.FormatUint(c.Revision, 10), strconv.FormatUint(revision, 10))
	}
	x.check("revision", strconv.FormatUint(x.ours.Snapshot().Revision(), 10), strconv.FormatUint(revision, 10))
}

// index adds a missing index to both, whatever is in the stores, or removes one of ours:
// its results must still equal client-go's.
func (x *stores) index() {
	add := func(name string) {
		if _, ok := x.theirs.GetIndexers()[name]; !ok {
			x.check("error", "none", kind(x.theirs.AddIndexers(cache.Indexers{name: indexers[name]})))
		}
	}
	switch x.IntN(4) {
	case 0:
		x.step("index by namespace")
		x.namespace = store.NewIndex(x.ours, "namespace", func(p *pod) ([]string, error) {
			return []string{p.Namespace}, nil
		})
		add("namespace")
	case 1:
		x.step("index by tag")
		x.tag = store.NewIndex(x.ours, "tag", func(p *pod) ([]string, error) { return p.Tags, nil })
		add("tag")
	case 2:
		x.step("index by rest")
		x.rest = store.NewIndex(x.ours, "rest", func(p *pod) ([]int, error) { return []int{p.Value % 3}, nil })
		add("rest")
	default:
		if x.tag != nil {
			x.step("remove the index by tag")
			x.tag.Remove()
		}
	}
}

func (x *stores) theirPods() map[string]*pod {
	pods := map[string]*pod{}
	for _, obj := range x.theirs.List() {
		pods[podKey(obj.(*pod))] = obj.(*pod)
	}
	return pods
}

// compare compares the current content of both stores.
func (x *stores) compare() {
	snapshot := x.ours.Snapshot()
	x.check("view", x.ourView(snapshot), x.theirView())
	x.check("ListKeys", strings.Join(ourKeys(snapshot), " "), strings.Join(orderedStore{x.theirs}.ListKeys(), " "))
	for _, key := range storeKeys {
		ours, ok := x.ours.Get(key)
		theirs, exists, _ := x.theirs.GetByKey(key)
		if ok != exists || ok && theirs != any(ours) {
			x.check("Get "+key, ours.String(), fmt.Sprint(theirs))
		}
	}
}

// compareMoments compares old snapshots, and the changes that lead from one to another.
func (x *stores) compareMoments() {
	for i, m := range x.moments {
		x.check(fmt.Sprintf("snapshot %d", i), m.indexes.ourView(m.snapshot), m.view)
		// The current indexes, whether older than the snapshot, younger or removed, must
		// find in it what client-go's find among the same objects.
		then := &stores{sequence: x.sequence, theirs: cache.NewIndexer(podKeyFunc, maps.Clone(x.theirs.GetIndexers()))}
		for _, p := range m.pods {
			x.check("error", "none", kind(then.theirs.Add(p)))
		}
		x.check(fmt.Sprintf("snapshot %d with the indexes of the end", i), x.ourView(m.snapshot), then.theirView())
		to := x.moments[x.IntN(len(x.moments))]
		patched := maps.Clone(m.pods)
		last := ""
		for c := range store.Diff(m.snapshot, to.snapshot) {
			old, had := m.pods[c.Key]
			want := delta.Added
			switch _, has := to.pods[c.Key]; {
			case had && has:
				want = delta.Updated
			case had:
				want = delta.Deleted
			}
			x.check("Diff of "+c.Key, fmt.Sprint(c.Type, c.Old, c.Missed, c.Key > last),
				fmt.Sprint(want, old, want == delta.Deleted, true))
			last = c.Key
			if c.Type == delta.Deleted {
				delete(patched, c.Key)
			} else {
				patched[c.Key] = c.New
			}
		}
		var got []*pod
		for _, key := range storeKeys {
			if p, ok := patched[key]; ok {
				got = append(got, p)
			}
		}
		x.check("patched by Diff", lines(got), lines(content(to.snapshot)))
	}
}

func ourKeys(s *store.Snapshot[*pod]) []string {
	keys := []string{}
	for key := range s.All() {
		keys = append(keys, key)
	}
	return keys
}

// linesOf returns the text of an iteration of ours.
func linesOf(seq func(func(string, *pod) bool)) string {
	var pods []*pod
	for _, p := range seq {
		pods = append(pods, p)
	}
	return lines(pods)
}

// ourView returns all that can be found in the snapshot, as text.
func (x *stores) ourView(s *store.Snapshot[*pod]) string {
	var b strings.Builder
	b.WriteString(lines(content(s)))
	if x.namespace != nil {
		writeValues(&b, slices.Collect(x.namespace.Values(s)))
		for _, value := range []string{"a", "ab", "b", "none"} {
			prefixed := linesOf(s.Prefix(value + "/"))
			x.check("namespace "+value, linesOf(x.namespace.Get(s, value)), prefixed)
			writeFound(&b, value, prefixed, slices.Collect(x.namespace.Keys(s, value)))
		}
	}
	if x.tag != nil {
		writeValues(&b, slices.Collect(x.tag.Values(s)))
		for _, value := range podTags {
			writeFound(&b, value, linesOf(x.tag.Get(s, value)), slices.Collect(x.tag.Keys(s, value)))
		}
	}
	if x.rest != nil {
		var values []string
		for value := range x.rest.Values(s) {
			values = append(values, strconv.Itoa(value))
		}
		writeValues(&b, values)
		for value := range 3 {
			writeFound(&b, strconv.Itoa(value), linesOf(x.rest.Get(s, value)), slices.Collect(x.rest.Keys(s, value)))
		}
	}
	return b.String() + "\n"
}

func writeValues(b *strings.Builder, values []string) {
	b.WriteString("\n" + strconv.Itoa(len(values)) + " values ") // one may be empty
	b.WriteString(strings.Join(values, ","))
}

func writeFound(b *strings.Builder, value, pods string, keys []string) {
	b.WriteString("\n" + value + ": " + pods + " = ")
	b.WriteString(strings.Join(keys, ","))
}

// theirView returns the same for client-go.
func (x *stores) theirView() string {
	var b strings.Builder
	b.WriteString(sortedLines(podsOf(x.theirs.List())))
	has := x.theirs.GetIndexers()
	write := func(name string, values ...string) {
		if has[name] == nil {
			return
		}
		all := x.theirs.ListIndexFuncValues(name)
		slices.Sort(all)
		writeValues(&b, all)
		for _, value := range values {
			pods, err := x.theirs.ByIndex(name, value)
			x.check("error", "none", kind(err))
			keys, err := x.theirs.IndexKeys(name, value)
			x.check("error", "none", kind(err))
			writeFound(&b, value, sortedLines(podsOf(pods)), keys)
		}
	}
	write("namespace", "a", "ab", "b", "none")
	write("tag", podTags...)
	write("rest", "0", "1", "2")
	return b.String() + "\n"
}
