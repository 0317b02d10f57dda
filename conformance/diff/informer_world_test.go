// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/wire"
)

// world is a model of an API server with one resource, pods. It answers both
// sides by the same rules, each through its own face, and does nothing by itself:
// what happens, and when, is for the test to say.
type world struct {
	// mu guards everything, faces and streams included.
	mu sync.Mutex
	// version is the newest one. Watches from before compacted are too old.
	version, compacted int
	pods               map[string]*corev1.Pod
	history            []event
	uids               int

	// streaming: it can send its state as a stream; if not, it says so.
	streaming bool
	// chunk is how many objects it sends in a page at most, 0 for as many as
	// asked for.
	chunk int
	// lag is how many versions the answer to a list of any state is behind.
	lag int
	// encoding is that of what our side gets.
	encoding wire.Encoding
	// ignoring: it does not know what initial events are.
	ignoring bool
	// vanished: the resource is no longer served.
	vanished bool

	ours, theirs *face
	// hold is where requests stop until released is closed.
	hold     stage
	released chan struct{}
}

// event is one of a watch, or of the history.
type event struct {
	typ     watch.EventType
	pod     *corev1.Pod // a bookmark has none
	version int
	// end: the bookmark after the initial events.
	end bool
}

// stage is where a request can be held.
type stage int

const (
	nowhere stage = iota
	// connecting is before anything is read.
	connecting
	// continuing is before a list's second page.
	continuing
	// ending is before the bookmark that ends the initial events.
	ending
)

func newWorld() *world {
	w := &world{version: 100, pods: map[string]*corev1.Pod{}, streaming: true, encoding: wire.Protobuf}
	w.ours, w.theirs = &face{world: w, our: true}, &face{world: w}
	return w
}

// faces are both sides.
func (w *world) faces() []*face { return []*face{w.ours, w.theirs} }

func keyOf(p *corev1.Pod) string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// write makes a new state of a pod, or a new pod, and tells who watches.
func (w *world) write(key string, change func(*corev1.Pod)) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	e := event{typ: watch.Modified, version: w.version}
	if old := w.pods[key]; old != nil {
		e.pod = old.DeepCopy()
	} else {
		w.uids++
		namespace, name, ok := strings.Cut(key, "/")
		if !ok {
			namespace, name = "", key
		}
		e.typ, e.pod = watch.Added, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: uidOf(w.uids), CreationTimestamp: metav1.Unix(int64(w.version), 0),
				Labels: map[string]string{}, Annotations: map[string]string{"noise": "much"},
			},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/app:1"}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
	}
	if change != nil {
		change(e.pod)
	}
	e.pod.ResourceVersion = strconv.Itoa(e.version)
	w.pods[key] = e.pod
	w.recordLocked(e)
	return e.pod
}

// remove deletes a pod. Its final state has the version of the deletion.
func (w *world) remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	final := w.pods[key].DeepCopy()
	final.ResourceVersion = strconv.Itoa(w.version)
	delete(w.pods, key)
	w.recordLocked(event{typ: watch.Deleted, pod: final, version: w.version})
}

func (w *world) recordLocked(e event) {
	w.history = append(w.history, e)
	w.sendLocked(e)
}

// send gives whoever watches an event that is not in the history.
func (w *world) send(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked(e)
}

func (w *world) sendLocked(e event) {
	for _, f := range w.faces() {
		if f.stream != nil {
			f.stream.sendLocked(e)
		}
	}
}

// bookmark tells who watches the version, to which another resource's writes have
// brought it.
func (w *world) bookmark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	w.sendLocked(event{typ: watch.Bookmark, version: w.version})
}

// compact forgets the history, so that nobody can watch from before now.
func (w *world) compact() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted = w.version
}

// vanish takes the resource away, or brings it back.
func (w *world) vanish(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vanished = away
}

// goBack makes it what it was at a version, as a restored backup does.
func (w *world) goBack(version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.atLocked(version)
	w.version, w.pods = version, map[string]*corev1.Pod{}
	for _, p := range list {
		w.pods[keyOf(p)] = p
	}
	w.history = slices.DeleteFunc(w.history, func(e event) bool { return e.version > version })
}

// end ends the streams of those who watch.
func (w *world) end(how finish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faces() {
		if f.stream != nil {
			f.stream.endLocked(how)
		}
	}
}

// atLocked is the state at a version, in the order of a list.
func (w *world) atLocked(version int) []*corev1.Pod {
	pods := w.pods
	if version < w.version {
		pods = map[string]*corev1.Pod{}
		for _, e := range w.history {
			switch {
			case e.version > version:
			case e.typ == watch.Deleted:
				delete(pods, keyOf(e.pod))
			default:
				pods[keyOf(e.pod)] = e.pod
			}
		}
	}
	list := make([]*corev1.Pod, 0, len(pods))
	for _, key := range slices.Sorted(maps.Keys(pods)) {
		list = append(list, pods[key])
	}
	return list
}

// holdAt makes requests stop, and release lets them go on.
func (w *world) holdAt(s stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.released = s, make(chan struct{})
}

func (w *world) release() { w.releaseTo(nowhere) }

// releaseTo lets requests go on as far as the next stage.
func (w *world) releaseTo(next stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold == nowhere {
		return
	}
	close(w.released)
	w.hold, w.released = next, make(chan struct{})
	for _, f := range w.faces() {
		f.held = false
		if s := f.stream; s != nil && s.initial {
			s.initial = false
			s.sendLocked(event{typ: watch.Bookmark, version: w.version, end: true})
		}
	}
}

// settled: both sides watch, or are held.
func (w *world) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faces() {
		if f.stream == nil && !f.held {
			return false
		}
	}
	return true
}

// face is the world as one side sees it.
type face struct {
	*world
	our bool
	// stream is the watch that is open, if one is.
	stream *stream
	held   bool
	// faults are what the next requests come to, and tokens what the next
	// continuations of lists do.
	faults, tokens []fault

	// lists counts complete states that were sent, watches those begun, and
	// streamed the states that were sent as streams.
	lists, watches, streamed int
	// stale is, unless it is 0, the version at which the next list is answered,
	// unless that asks for the newest.
	stale int
	// refusals counts requests for a stream that it cannot send.
	refusals int
	// last is the version of what was sent last, most the highest sent.
	last, most int
}

// pass waits while the stage is held, and returns the fault that is due.
func (f *face) pass(ctx context.Context, at stage) fault {
	for {
		f.mu.Lock()
		if f.hold != at {
			break
		}
		released := f.released
		f.held = true
		f.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return broken
		}
	}
	defer f.mu.Unlock()
	if f.vanished {
		return notServed
	}
	due := &f.faults
	if at == continuing {
		due = &f.tokens
	}
	if len(*due) == 0 {
		return none
	}
	next := (*due)[0]
	*due = (*due)[1:]
	return next
}

// reachedLocked notes a version that was sent.
func (f *face) reachedLocked(version int) {
	f.last, f.most = version, max(f.most, version)
}

// page is the answer to a request for a page.
type page struct {
	pods    []*corev1.Pod
	version int
	next    string // the token
}

// list answers a request for a page.
func (f *face) list(ctx context.Context, version string, limit int, token string) (page, fault) {
	at := connecting
	if token != "" {
		at = continuing
	}
	if fault := f.pass(ctx, at); fault != none {
		return page{}, fault
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var p page
	from := 0
	switch {
	case token != "":
		if _, err := fmt.Sscanf(token, "%d/%d", &p.version, &from); err != nil {
			panic(err)
		}
	case version == "0":
		p.version = max(f.version-f.lag, f.compacted, 1)
	default:
		if asked, _ := strconv.Atoi(version); asked > f.version {
			return page{}, tooLarge
		}
		p.version = f.version
		if version != "" && f.stale != 0 {
			p.version, f.stale = f.stale, 0
		}
	}
	p.pods = f.atLocked(p.version)[from:]
	if limit > 0 && f.chunk > 0 {
		limit = min(limit, f.chunk)
	}
	if limit > 0 && limit < len(p.pods) {
		p.pods = p.pods[:limit]
		p.next = fmt.Sprintf("%d/%d", p.version, from+limit)
	}
	if p.next == "" && limit != 1 { // which asks for the version only
		f.lists++
		f.reachedLocked(p.version)
	}
	return p, none
}

// watch answers a request for a watch.
func (f *face) watch(ctx context.Context, version string, initial bool) (*stream, fault) {
	if initial && !f.streaming {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refusals++
		return nil, unsupported
	}
	if fault := f.pass(ctx, connecting); fault != none {
		return nil, fault
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	from, _ := strconv.Atoi(version)
	initial = initial && !f.ignoring
	switch {
	case initial && from > f.version:
		return nil, tooLarge
	case !initial && from < f.compacted:
		return nil, gone
	}
	s := newStream(f)
	f.stream = s
	f.watches++
	if initial {
		s.initial = true
		for _, p := range f.atLocked(f.version) {
			s.sendLocked(event{typ: watch.Added, pod: p})
		}
		f.lists++
		f.streamed++
		if f.hold == ending {
			return s, none
		}
		s.initial = false
		s.sendLocked(event{typ: watch.Bookmark, version: f.version, end: true})
		return s, none
	}
	for _, e := range f.history {
		if e.version > from {
			s.sendLocked(e)
		}
	}
	return s, none
}
