// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// entry is the state of a pod, or its last state if it was deleted.
type entry struct {
	namespace, name string
	app, node       string // app is "" if it has no such label
	// odd means that its specification is not valid for a pod. Only JSON can contain
	// that.
	odd     bool
	version uint64
	deleted bool
	at      time.Time
}

func (e *entry) key() string { return e.namespace + "/" + e.name }

// journal is an API server with pods and their complete history, era by era. A new era
// begins when the server is restored from a backup. It is an http.RoundTripper, so that
// it needs no network.
type journal struct {
	// asJSON means that the server has no protobuf, and streams that it sends initial
	// events.
	asJSON, streams bool

	mu      sync.Mutex
	version uint64
	eras    [][]*entry
	// forgotten is the oldest version that can be watched from.
	forgotten uint64
	down      bool
	open      map[*journalWatch]struct{}
	// lists are the versions of the states that were completely read.
	lists []uint64
}

func newJournal(asJSON, streams bool) *journal {
	return &journal{
		asJSON: asJSON, streams: streams, version: 1, eras: [][]*entry{nil}, open: map[*journalWatch]struct{}{},
	}
}

// era returns the number of the current era.
func (j *journal) era() int { return len(j.eras) - 1 }

// at returns the state at a version of an era, by key.
func (j *journal) at(era int, version uint64) map[string]*entry {
	state := map[string]*entry{}
	for _, e := range j.eras[era] {
		if e.version > version {
			break
		}
		if state[e.key()] = e; e.deleted {
			delete(state, e.key())
		}
	}
	return state
}

// write creates, changes or deletes a pod according to an entry.
func (j *journal) write(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.at(j.era(), j.version)[e.key()]
	if e.deleted && before == nil {
		return
	}
	j.version++
	e.version, e.at = j.version, time.Now()
	j.eras[j.era()] = append(j.eras[j.era()], &e)
	for w := range j.open {
		if e.version > w.from {
			w.event(&e, before)
		}
	}
}

// pass increases the version, as if another resource was written.
func (j *journal) pass() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.version++
}

// bookmark sends a bookmark to all watches.
func (j *journal) bookmark() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for w := range j.open {
		if j.version >= w.from {
			w.bookmark(j.version, false)
		}
	}
}

// forget makes all versions before the current one too old.
func (j *journal) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forgotten = j.version
}

// cut breaks all watches. While the server is down it refuses requests.
func (j *journal) cut(down bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cutLocked(down)
}

func (j *journal) cutLocked(down bool) {
	j.down = down
	for w := range j.open {
		w.end(errors.New("connection reset"))
	}
	clear(j.open)
}

// restore puts the server back to a version. A watch that is cut cannot begin again before that.
func (j *journal) restore(version uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cutLocked(false)
	events := slices.Clone(j.eras[j.era()])
	j.eras = append(j.eras, slices.DeleteFunc(events, func(e *entry) bool { return e.version > version }))
	j.version, j.forgotten = version, version
}

// RoundTrip responds to a request of the replica.
func (j *journal) RoundTrip(r *http.Request) (*http.Response, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.down {
		return nil, errors.New("connection refused")
	}
	switch r.URL.Path {
	case "/api":
		return answerJSON(200, `{"kind":"APIVersions","versions":["v1"]}`), nil
	case "/apis":
		return answerJSON(200, `{"kind":"APIGroupList","groups":[]}`), nil
	case "/api/v1":
		return answerJSON(200,
			`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`), nil
	case "/api/v1/namespaces/kube-system":
		return answerJSON(200, fmt.Sprintf(
			`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"%p"}}`, j,
		)), nil
	case "/api/v1/pods", "/api/v1/namespaces/n/pods", "/api/v1/namespaces/m/pods":
		query := r.URL.Query()
		version, _ := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
		if query.Get("watch") != "" {
			w := &journalWatch{journal: j, ctx: r.Context(), from: version, ready: make(chan struct{}, 1)}
			w.selects = selectionOf(r)
			if query.Get("timeoutSeconds") == "3" {
				time.AfterFunc(time.Second, w.lastBookmark)
			}
			return j.watchLocked(w, version, query.Get("sendInitialEvents") == "true"), nil
		}
		return j.listLocked(version, query.Get("limit"), query.Get("continue")), nil
	}
	return answerJSON(404, string(statusJSON(404, metav1.StatusReasonNotFound, ""))), nil
}

// CloseIdleConnections is called at the end of a connection. A journal has none.
func (*journal) CloseIdleConnections() {}

// listLocked lists the current state or, with a token, the state of the token.
func (j *journal) listLocked(version uint64, limit, from string) *http.Response {
	if version > j.version {
		return answerJSON(504, string(
			statusJSON(504, metav1.StatusReasonTimeout, metav1.CauseTypeResourceVersionTooLarge),
		))
	}
	at, start := j.version, ""
	if from != "" {
		text, key, _ := strings.Cut(from, ":")
		at, _ = strconv.ParseUint(text, 10, 64)
		if start = key; at < j.forgotten {
			return answerJSON(410, string(statusJSON(410, metav1.StatusReasonExpired, "")))
		}
	}
	state := j.at(j.era(), at)
	var some []*entry
	next, most := "", len(state)
	if n, err := strconv.Atoi(limit); err == nil && n > 0 {
		most = n
	}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if key <= start {
			continue
		}
		if len(some) == most {
			next = fmt.Sprintf("%d:%s", at, some[most-1].key())
			break
		}
		some = append(some, state[key])
	}
	if next == "" {
		j.lists = append(j.lists, at)
	}
	return j.answerList(some, at, next)
}

func (j *journal) answerList(some []*entry, version uint64, next string) *http.Response {
	if j.asJSON {
		items := make([]string, len(some))
		for i, e := range some {
			items[i] = e.json(false)
		}
		return answerJSON(200, fmt.Sprintf(
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`,
			version, next, strings.Join(items, ","),
		))
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version), Continue: next}}
	for _, e := range some {
		list.Items = append(list.Items, *e.pod())
	}
	raw, _ := list.Marshal()
	return answer(200, "application/vnd.kubernetes.protobuf", enveloped("v1", "PodList", raw))
}

// selectionOf returns which pods a request selects.
func selectionOf(r *http.Request) func(*entry) bool {
	query := r.URL.Query()
	_, namespace, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/pods"), "/namespaces/")
	byLabel, _ := labels.Parse(query.Get("labelSelector"))
	byField, _ := fields.ParseSelector(query.Get("fieldSelector"))
	return func(e *entry) bool {
		all := labels.Set{}
		if e.app != "" {
			all["app"] = e.app
		}
		return (namespace == "" || e.namespace == namespace) && byLabel.Matches(all) &&
			byField.Matches(fields.Set{"metadata.name": e.name, "spec.nodeName": e.node})
	}
}

func (j *journal) watchLocked(w *journalWatch, version uint64, initial bool) *http.Response {
	if initial && !j.streams {
		return answerJSON(422, string(statusJSON(422, metav1.StatusReasonInvalid, "")))
	}
	resp := answer(200, "application/json", nil)
	if !j.asJSON {
		resp.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	}
	resp.Body = w
	switch {
	case initial && version > j.version:
		w.fail(504, metav1.StatusReasonTimeout, metav1.CauseTypeResourceVersionTooLarge)
	case initial:
		state := j.at(j.era(), j.version)
		for _, key := range slices.Sorted(maps.Keys(state)) {
			w.event(state[key], nil)
		}
		w.from = j.version
		w.bookmark(j.version, true)
		j.lists = append(j.lists, j.version)
		j.open[w] = struct{}{}
	case version < j.forgotten:
		w.fail(410, metav1.StatusReasonExpired, "")
	default:
		state := j.at(j.era(), version)
		for _, e := range j.eras[j.era()] {
			if e.version <= version {
				continue
			}
			w.event(e, state[e.key()])
			if state[e.key()] = e; e.deleted {
				delete(state, e.key())
			}
		}
		j.open[w] = struct{}{}
	}
	return resp
}

// journalWatch is the body of a watch.
type journalWatch struct {
	journal *journal
	ctx     context.Context
	from    uint64
	selects func(*entry) bool

	mu    sync.Mutex
	bytes []byte
	err   error
	ready chan struct{}
}

func (w *journalWatch) push(raw []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes, w.err = append(w.bytes, raw...), err
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *journalWatch) end(err error) { w.push(nil, err) }

func (w *journalWatch) send(typ, kind, plain string, raw []byte) {
	if w.journal.asJSON {
		w.push([]byte(`{"type":"`+typ+`","object":`+plain+"}\n"), nil)
		return
	}
	event := metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: enveloped("v1", kind, raw)}}
	frame, _ := event.Marshal()
	w.push(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...), nil)
}

// event sends the event of a change from a state before, nil if there was none, to another one. A pod
// that is not selected any more is deleted, with its state before.
func (w *journalWatch) event(e, before *entry) {
	was, is := before != nil && w.selects(before), !e.deleted && w.selects(e)
	typ := "ADDED"
	switch {
	case !was && !is:
		return
	case was && is:
		typ = "MODIFIED"
	case was:
		last := *before
		if e.deleted {
			last = *e
		}
		last.version = e.version
		e, typ = &last, "DELETED"
	}
	raw, _ := e.pod().Marshal()
	w.send(typ, "Pod", e.json(true), raw)
}

// lastBookmark sends the bookmark two seconds before the end of a watch.
func (w *journalWatch) lastBookmark() {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	if _, open := w.journal.open[w]; open && w.journal.version >= w.from {
		w.bookmark(w.journal.version, false)
	}
}

func (w *journalWatch) bookmark(version uint64, end bool) {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	if pod.ResourceVersion = fmt.Sprint(version); end {
		pod.Annotations = map[string]string{"k8s.io/initial-events-end": "true"}
	}
	plain, _ := json.Marshal(pod)
	raw, _ := pod.Marshal()
	w.send("BOOKMARK", "Pod", string(plain), raw)
}

func (w *journalWatch) fail(code int32, reason metav1.StatusReason, cause metav1.CauseType) {
	plain := statusJSON(code, reason, cause)
	var status metav1.Status
	_ = json.Unmarshal(plain, &status)
	raw, _ := status.Marshal()
	w.send("ERROR", "Status", string(plain), raw)
	w.end(io.EOF)
}

// Read waits for events.
func (w *journalWatch) Read(b []byte) (int, error) {
	for {
		w.mu.Lock()
		n := copy(b, w.bytes)
		w.bytes = w.bytes[n:]
		err := w.err
		w.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-w.ready:
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
}

// Close ends the watch.
func (w *journalWatch) Close() error {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	delete(w.journal.open, w)
	w.end(io.ErrClosedPipe)
	return nil
}

func (e *entry) pod() *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.name, ResourceVersion: fmt.Sprint(e.version)},
		Spec:       corev1.PodSpec{NodeName: e.node},
	}
	if e.app != "" {
		p.Labels = map[string]string{"app": e.app}
	}
	return p
}

func (e *entry) json(kind bool) string {
	head, labels, containers := "", "", "[]"
	if kind {
		head = `"kind":"Pod","apiVersion":"v1",`
	}
	if e.app != "" {
		labels = fmt.Sprintf(`,"labels":{"app":%q}`, e.app)
	}
	if e.odd {
		containers = `"none"`
	}
	return fmt.Sprintf(
		`{%s"metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d"%s},"spec":{"nodeName":%q,"containers":%s}}`,
		head, e.name, e.namespace, e.version, labels, e.node, containers,
	)
}

func enveloped(apiVersion, kind string, raw []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, _ := unknown.Marshal()
	return append([]byte("k8s\x00"), b...)
}

func statusJSON(code int32, reason metav1.StatusReason, cause metav1.CauseType) []byte {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     code,
		Reason:   reason,
	}
	if cause != "" {
		status.Details = &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: cause, Message: "Too large resource version"}},
		}
	}
	raw, _ := json.Marshal(status)
	return raw
}

func answerJSON(code int, body string) *http.Response {
	return answer(code, "application/json", []byte(body))
}

func answer(code int, contentType string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(string(body))),
		ContentLength: -1,
	}
}
