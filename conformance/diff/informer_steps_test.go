// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed"
)

// disconnect ends the streams, and makes changes until they are back.
func (x *informers) disconnect() {
	w := x.model
	x.calm()
	how := finish(x.IntN(5))
	short := x.chance(6)
	if short {
		how = clean
	}
	writing := x.chance(2)
	compacted := writing && x.chance(2)
	x.repair()
	x.settle()
	x.compare(inOrder)

	from := w.version
	lists := w.ours.lists
	exact := !short && how != endInternal
	if x.chance(5) {
		kinds := []fault{gone, busy, refused}
		if x.chance(2) {
			kinds = append(kinds, broken, internal)
			exact = false
		}
		x.faults(kinds...)
	}
	x.step("streams end: %v, short %v", how, short)
	if short {
		w.end(clean)
		synctest.Wait()
	}
	free := writing && exact && !compacted && how != endGone && len(w.ours.faults) == 0 && x.chance(2)
	if !free {
		w.holdAt(connecting)
	}
	w.end(how)
	if writing {
		for range 1 + x.IntN(4) {
			x.writeAny()
		}
	}
	if !free {
		x.repair()
		if compacted {
			x.step("compact")
			w.compact()
		}
		x.settle()
		w.release()
	}
	x.settle()
	w.ours.faults, w.theirs.faults = nil, nil
	switch {
	case !exact:
		x.compareResumed(from, lists)
	case w.ours.lists == lists:
		x.compare(inOrder)
	default:
		x.compare(byObject)
	}
}

// relistWhileWriting makes both sides read the whole state again, and writes while they
// have read a part of it.
func (x *informers) relistWhileWriting() {
	w := x.model
	x.calm()
	x.repair()
	x.settle()
	x.compare(inOrder)
	x.step("relist")
	w.holdAt(connecting)
	w.end(endGone)
	x.settle()
	if x.chance(3) {
		x.step("tokens expire")
		w.ours.tokens, w.theirs.tokens = []fault{gone}, []fault{gone}
	}
	next := continuing
	if w.streaming {
		next = ending
	}
	w.releaseTo(next)
	x.settle()
	for range x.IntN(4) {
		x.writeAny()
	}
	if !w.streaming {
		x.repair() // the list may have to begin again
	}
	w.release()
	x.settle()
	w.ours.tokens, w.theirs.tokens = nil, nil
	x.compare(nil)
}

// anomaly makes the server repeat events, reorder them, or send deletions of objects that
// never existed. Ours ignores most of it. Then a bookmark brings client-go's version
// back.
func (x *informers) anomaly() {
	w := x.model
	key := podKeys[x.IntN(len(podKeys))]
	now := w.pods[key]
	states := []*corev1.Pod{}
	var final *corev1.Pod
	for _, e := range w.history {
		if keyOf(e.pod) != key {
			continue
		}
		if states = append(states, e.pod); e.typ == watch.Deleted {
			final = e.pod
		}
	}
	quiet := true
	switch op := x.IntN(4); {
	case now != nil && bad(now):
		return
	case op == 0:
		x.step("deletion of what never was")
		w.version++
		w.send(event{typ: watch.Deleted, version: w.version, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "x", Name: "never", UID: "never", ResourceVersion: strconv.Itoa(w.version),
			Labels: map[string]string{"tier": "front"},
		}}})
	case now == nil && final != nil && !bad(final):
		// Neither side keeps deleted objects, so neither can notice.
		x.step("%s comes and goes again", state(final))
		w.send(event{typ: watch.Modified, pod: states[len(states)-2], version: versionOf(states[len(states)-2])})
		w.send(event{typ: watch.Deleted, pod: final, version: versionOf(final)})
		quiet = false
	case now == nil:
		return
	case op == 1 || len(states) < 2:
		x.step("%s once more", state(now))
		w.send(event{typ: []watch.EventType{watch.Added, watch.Modified}[x.IntN(2)], pod: now, version: versionOf(now)})
	default:
		past := states[x.IntN(len(states)-1)]
		typ := watch.Modified
		if op == 3 {
			typ = watch.Deleted
		}
		x.step("%s again as %s, and then %s", state(past), typ, state(now))
		w.send(event{typ: typ, pod: past, version: versionOf(past)})
		w.send(event{typ: watch.Modified, pod: now, version: versionOf(now)})
	}
	w.bookmark()
	x.settle()
	if !quiet {
		x.compare(inOrder)
		return
	}
	for i, p := range x.readers {
		p.ours.mu.Lock()
		got := inOrder(p.ours.calls)
		p.ours.mu.Unlock()
		x.check(fmt.Sprintf("reader %d (here client-go is the model)", i), got, "")
	}
	x.compare(nil)
}

// join adds a reader to both sides.
func (x *informers) join() {
	p := &pair{
		ours:   newReader(true),
		theirs: newReader(false),
		before: map[string]known{},
		never:  x.resync == 0 || x.chance(3),
	}
	loop := x.chance(4)
	x.step("reader joins: loop %v, never %v", loop, p.never)
	var handle cache.ResourceEventHandlerRegistration
	var err error
	if p.never = p.never || loop; p.never {
		handle, err = x.theirs.AddEventHandlerWithResyncPeriod(p.theirs, 0)
	} else {
		handle, err = x.theirs.AddEventHandler(p.theirs)
	}
	noError(err)
	p.theirSynced = handle.HasSynced
	if loop {
		ctx, cancel := context.WithCancel(x.ctx)
		x.running.Go(func() { p.ours.read(ctx, x.ours) })
		p.close = cancel
		x.did.add("loops", 1)
	} else {
		resync := time.Duration(0)
		if p.never {
			resync = noResync
		}
		r := x.ours.Handle(p.ours.handler(resync))
		p.ourSynced = func() bool { return closed(r.Synced()) }
		p.close = r.Close
	}
	closeOurs := p.close
	p.close = func() {
		closeOurs()
		noError(x.theirs.RemoveEventHandler(handle))
	}
	x.readers = append(x.readers, p)
}

// leave closes a reader, which must not be called afterwards.
func (x *informers) leave() {
	if len(x.readers) < 2 {
		return
	}
	i := x.IntN(len(x.readers))
	x.step("reader %d leaves", i)
	x.readers[i].close()
	synctest.Wait()
	x.gone = append(x.gone, x.readers[i])
	x.readers = slices.Delete(x.readers, i, i+1)
}

// index adds an index that is missing.
func (x *informers) index() {
	for _, name := range slices.Sorted(maps.Keys(indexFuncs)) {
		if x.ourIdx[name] == nil && x.chance(2) {
			x.step("index by %s", name)
			x.ourIdx[name] = watershed.IndexBy(x.ours, indexFuncs[name])
			noError(x.theirs.AddIndexers(cache.Indexers{name: theirIndexFunc(name)}))
			x.did.add("indexes", 1)
			return
		}
	}
}

// resyncs waits until all readers with a resync have received everything again.
func (x *informers) resyncs() {
	if x.resync == 0 {
		return
	}
	x.step("wait for resyncs")
	x.settle()
	x.compare(inOrder)
	for _, p := range x.readers {
		p.ours.take()
		p.theirs.take()
	}
	time.Sleep(2*x.resync + time.Minute)
	x.settle()
	for i, p := range x.readers {
		calls, ours := p.ours.take()
		x.check("calls", inOrder(calls), "")
		calls, theirs := p.theirs.take()
		x.check("calls", "", inOrder(calls))
		what := fmt.Sprintf("given to reader %d (never %v) again", i, p.never)
		x.check(what, fmt.Sprint(slices.Sorted(maps.Keys(ours))), fmt.Sprint(slices.Sorted(maps.Keys(theirs))))
		want := p.ours.known()
		if p.never {
			clear(want)
		}
		x.check(what, fmt.Sprint(slices.Sorted(maps.Keys(ours))), fmt.Sprint(slices.Sorted(maps.Keys(want))))
		x.did.add("objects given again", len(ours))
	}
	x.compare(inOrder)
}
