// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
)

// compare compares all observable state. how returns calls in the order in which they are
// compared; if it is nil, only the resulting states are compared.
func (x *informers) compare(how func([]call) string) {
	for i, p := range x.readers {
		x.compareReader(i, p, how)
	}
	snapshot := x.ours.Snapshot()
	x.check("objects and indexes", x.ourText(), x.theirText())
	x.check("Len", strconv.Itoa(x.ours.Len()), strconv.Itoa(len(x.theirs.GetStore().ListKeys())))

	w := x.model
	x.check("LastSyncResourceVersion", x.ours.Status().Reflector.Version, x.theirs.LastSyncResourceVersion())
	x.check("LastSyncResourceVersion, sent", strconv.Itoa(w.ours.most), strconv.Itoa(w.theirs.last))
	x.check("LastSyncResourceVersion, as sent", x.ours.Status().Reflector.Version, strconv.Itoa(w.ours.most))
	if !x.strict { // refused pods are not in the store, nor are their versions
		x.check("Snapshot.Version", strconv.FormatUint(snapshot.Version(), 10), x.theirs.LastSyncResourceVersion())
	}
}

func (x *informers) compareReader(i int, p *pair, how func([]call) string) {
	name := fmt.Sprintf("reader %d", i)
	ourKnown, theirKnown := p.ours.known(), p.theirs.known()
	ours, again := p.ours.take()
	theirs, _ := p.theirs.take()
	if how != nil {
		x.check(name, how(ours), how(theirs))
	}
	x.check(name+" complains", p.ours.wrong, "")
	x.check(name+" of client-go complains", "", p.theirs.wrong)
	if !maps.Equal(ourKnown, theirKnown) {
		x.check(name+" knows", fmt.Sprint(ourKnown), fmt.Sprint(theirKnown))
	}
	if p.never {
		x.check(name+" is given again", strconv.Itoa(len(again)), "0")
	}
	if p.ourSynced != nil {
		x.check(name+" has synced", strconv.FormatBool(p.ourSynced()), strconv.FormatBool(p.theirSynced()))
	}
	p.before = ourKnown
	x.count(ours)
}

// compareResumed compares after client-go has listed where ours has resumed: both have
// the same state, and ours has received every event.
func (x *informers) compareResumed(from, lists int) {
	w := x.model
	if w.ours.lists != lists {
		x.compare(nil)
		return
	}
	x.did.add("watches resumed where client-go lists", 1)
	for i, p := range x.readers {
		var want []call
		knows := maps.Clone(p.before)
		for _, e := range w.history {
			if e.version <= from || bad(e.pod) {
				continue
			}
			pod := e.pod.DeepCopy()
			if x.transform {
				pod, _ = cut(x.strict)(pod)
			}
			c := call{key: keyOf(pod), now: state(pod)}
			k, has := knows[c.key]
			switch {
			case e.typ == watch.Deleted && has:
				c.op, c.flag = "delete", true
				delete(knows, c.key)
			case e.typ == watch.Deleted:
				continue
			case has:
				c.op, c.old = "update", k.text
			default:
				c.op = "add"
			}
			if e.typ != watch.Deleted {
				knows[c.key] = known{text: c.now}
			}
			want = append(want, c)
		}
		p.ours.mu.Lock()
		got := inOrder(p.ours.calls)
		p.ours.mu.Unlock()
		x.check(fmt.Sprintf("reader %d (here client-go is the model)", i), got, inOrder(want))
	}
	x.compare(nil)
}

// count updates the tally.
func (x *informers) count(calls []call) {
	n := map[string]int{}
	for _, c := range calls {
		switch {
		case c.op == "add" && c.flag:
			n["initial additions"]++
		case c.op == "add":
			n["additions"]++
		case c.op == "update":
			n["updates"]++
		case c.flag:
			n["deletions seen"]++
		default:
			n["deletions missed"]++
		}
	}
	for what, n := range n {
		x.did.add(what, n)
	}
}

var web = labels.SelectorFromSet(labels.Set{"app": "web"})

// ourObjects returns all objects and index entries of a snapshot of ours.
func ourObjects(s watershed.Snapshot[*corev1.Pod]) string {
	var b strings.Builder
	writeAll(&b, "all", pods(s.All()))
	writeAll(&b, "a", pods(s.Namespace("a")))
	writeAll(&b, "web", pods(s.Select("", web)))
	writeAll(&b, "web of a", pods(s.Select("a", web)))
	return b.String()
}

// ourText returns the current content of ours.
func (x *informers) ourText() string {
	var b strings.Builder
	s := x.ours.Snapshot()
	b.WriteString(ourObjects(s))
	for _, name := range slices.Sorted(maps.Keys(x.ourIdx)) {
		index := x.ourIdx[name]
		for value := range index.Values() {
			writeAll(&b, name+"="+value, slices.Collect(index.GetIn(s, value)))
			b.WriteString(strings.Join(slices.Collect(index.Keys(value)), ","))
		}
	}
	return b.String()
}

func pods(seq iter.Seq2[string, *corev1.Pod]) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range seq {
		pods = append(pods, p)
	}
	return pods
}

func writeAll(b *strings.Builder, what string, pods []*corev1.Pod) {
	b.WriteString("\n" + what + ":")
	for _, p := range pods {
		b.WriteString(" " + state(p) + ";")
	}
}

// theirText returns the same for client-go.
func (x *informers) theirText() string {
	indexer := x.theirs.GetIndexer()
	var b strings.Builder
	note := func(what string, list []any) {
		pods := make([]*corev1.Pod, len(list))
		for i, p := range list {
			pods[i] = p.(*corev1.Pod)
		}
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(keyOf(a), keyOf(b)) })
		writeAll(&b, what, pods)
	}
	list := func(all func(cache.AppendFunc) error) []any {
		var pods []any
		noError(all(func(p any) { pods = append(pods, p) }))
		return pods
	}
	note("all", indexer.List())
	note("a", list(func(add cache.AppendFunc) error {
		return cache.ListAllByNamespace(indexer, "a", labels.Everything(), add)
	}))
	note("web", list(func(add cache.AppendFunc) error { return cache.ListAll(indexer, web, add) }))
	note("web of a", list(func(add cache.AppendFunc) error { return cache.ListAllByNamespace(indexer, "a", web, add) }))
	for _, name := range slices.Sorted(maps.Keys(x.ourIdx)) {
		values := indexer.ListIndexFuncValues(name)
		slices.Sort(values)
		for _, value := range values {
			pods, err := indexer.ByIndex(name, value)
			noError(err)
			keys, err := indexer.IndexKeys(name, value)
			noError(err)
			note(name+"="+value, pods)
			b.WriteString(strings.Join(keys, ","))
		}
	}
	return b.String()
}

// finish compares the final states, with the model too, and stops.
func (x *informers) finish() {
	x.settle()
	x.compare(inOrder)
	w := x.model
	for key, ours := range x.ours.All() {
		obj, _, err := x.theirs.GetStore().GetByKey(key)
		noError(err)
		copied := ours.DeepCopy()
		copied.TypeMeta = metav1.TypeMeta{}
		if !reflect.DeepEqual(copied, obj) {
			x.check("object", fmt.Sprintf("%+v", copied), fmt.Sprintf("%+v", obj))
		}
	}
	for _, key := range podKeys {
		p, ours := w.pods[key], ""
		if has, ok := x.ours.Get(key); ok {
			ours = has.ResourceVersion
		}
		switch {
		case p == nil:
			x.check(key+" (here client-go is the model)", ours, "")
		case !bad(p):
			x.check(key+" (here client-go is the model)", ours, p.ResourceVersion)
		}
	}
	for _, s := range x.seen {
		x.check("a snapshot of before (here client-go is the same, then)", ourObjects(s.snapshot), s.text)
	}
	x.did.add("states listed", w.ours.lists-w.ours.streamed)
	x.did.add("states streamed", w.ours.streamed)

	x.step("stop")
	x.end()
	for i, p := range append(x.readers, x.gone...) {
		ours, _ := p.ours.take()
		theirs, _ := p.theirs.take()
		x.check(fmt.Sprintf("reader %d after the end", i), inOrder(ours), inOrder(theirs))
		x.check(fmt.Sprintf("reader %d after the end", i), inOrder(ours), "")
	}
}
