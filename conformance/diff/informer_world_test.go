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

// model is a model of an API server with one resource, pods. It responds to both sides by
// the same rules, each through its own face, and does nothing by itself: the test
// controls what happens, and when.
type model struct {
	// mu guards everything, including faces and streams.
	mu sync.Mutex
	// version is the newest version. Watches from before compacted are too old.
	version, compacted int
	pods               map[string]*corev1.Pod
	history            []event
	uids               int

	// streaming means that it can send its state as a stream. Otherwise it refuses.
	streaming bool
	// chunk is the largest number of objects in a page, 0 for as many as requested.
	chunk int
	// lag is by how many versions the response to a list of any state is behind.
	lag int
	// encoding is the encoding of objects for our side.
	encoding wire.Encoding
	// ignoring means that it ignores requests for initial events.
	ignoring bool
	// vanished means that the resource is no longer served.
	vanished bool

	ours, theirs *face
	// hold is the stage at which requests wait until released is closed.
	hold     stage
	released chan struct{}
}

// event is an event of a watch, or of the history.
type event struct {
	typ     watch.EventType
	pod     *corev1.Pod // a bookmark has none
	version int
	// end marks the bookmark after the initial events.
	end bool
}

// stage is a point at which a request can be held.
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

func newModel() *model {
	w := &model{version: 100, pods: map[string]*corev1.Pod{}, streaming: true, encoding: wire.Protobuf}
	w.ours, w.theirs = &face{model: w, our: true}, &face{model: w}
	return w
}

// faces returns both sides.
func (w *model) faces() []*face { return []*face{w.ours, w.theirs} }

func keyOf(p *corev1.Pod) string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// write creates or changes a pod, and sends the event to the watches.
func (w *model) write(key string, change func(*corev1.Pod)) *corev1.Pod {
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
				Namespace: namespace, Name: name, UID: uidOf(w.uids),
				CreationTimestamp: metav1.Unix(int64(w.version), 0),
				Labels:            map[string]string{}, Annotations: map[string]string{"noise": "much"},
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
func (w *model) remove(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	final := w.pods[key].DeepCopy()
	final.ResourceVersion = strconv.Itoa(w.version)
	delete(w.pods, key)
	w.recordLocked(event{typ: watch.Deleted, pod: final, version: w.version})
}

func (w *model) recordLocked(e event) {
	w.history = append(w.history, e)
	w.sendLocked(e)
}

// send sends an event to the watches that is not in the history.
func (w *model) send(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked(e)
}

func (w *model) sendLocked(e event) {
	for _, f := range w.faces() {
		if f.stream != nil {
			f.stream.sendLocked(e)
		}
	}
}

// bookmark sends a bookmark to the watches, with a version that writes of another
// resource have reached.
func (w *model) bookmark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	w.sendLocked(event{typ: watch.Bookmark, version: w.version})
}

// compact drops the history, so that watches from before now are too old.
func (w *model) compact() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compacted = w.version
}

// vanish removes the resource, or brings it back.
func (w *model) vanish(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vanished = away
}

// goBack restores the state at a version, like a backup.
func (w *model) goBack(version int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.atLocked(version)
	w.version, w.pods = version, map[string]*corev1.Pod{}
	for _, p := range list {
		w.pods[keyOf(p)] = p
	}
	w.history = slices.DeleteFunc(w.history, func(e event) bool { return e.version > version })
}

// end ends all streams.
func (w *model) end(how finish) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faces() {
		if f.stream != nil {
			f.stream.endLocked(how)
		}
	}
}

// atLocked returns the state at a version, in the order of a list.
func (w *model) atLocked(version int) []*corev1.Pod {
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

// holdAt makes requests wait, and release lets them continue.
func (w *model) holdAt(s stage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold, w.released = s, make(chan struct{})
}

func (w *model) release() { w.releaseTo(nowhere) }

// releaseTo lets requests continue to the next stage.
func (w *model) releaseTo(next stage) {
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

// settled reports whether both sides watch, or are held.
func (w *model) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faces() {
		if f.stream == nil && !f.held {
			return false
		}
	}
	return true
}

// face is the model as one side sees it.
type face struct {
	*model
	our bool
	// stream is the open watch, nil if there is none.
	stream *stream
	held   bool
	// faults are the outcomes of the next requests, and tokens those of the next
	// continuations of lists.
	faults, tokens []fault

	// lists counts the complete states that were sent, watches the watches that were
	// begun, and streamed the states that were sent as streams.
	lists, watches, streamed int
	// stale, unless it is 0, is the version of the response to the next list, unless the
	// list requests the newest.
	stale int
	// refusals counts requests for a stream that it cannot send.
	refusals int
	// last is the version that was sent last, and most the highest one.
	last, most int
}

// pass waits while the stage is held, and returns the next fault.
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

// reachedLocked records a version that was sent.
func (f *face) reachedLocked(version int) {
	f.last, f.most = version, max(f.most, version)
}

// page is the response to a request for a page.
type page struct {
	pods    []*corev1.Pod
	version int
	next    string // the token
}

// list responds to a request for a page.
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
	if p.next == "" && limit != 1 { // limit 1 requests only the version
		f.lists++
		f.reachedLocked(p.version)
	}
	return p, none
}

// watch responds to a request for a watch.
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
