// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// diffSelector is the selection of a client: a namespace or "", and a query.
type diffSelector struct {
	namespace, query string
	matches          func(*entry) bool
}

var diffSelectors = []diffSelector{
	{"", "", func(*entry) bool { return true }},
	{"n", "", func(e *entry) bool { return e.namespace == "n" }},
	{"", "labelSelector=app%3Dx", func(e *entry) bool { return e.app == "x" }},
	{"", "labelSelector=app", func(e *entry) bool { return e.app != "" }},
	{"m", "labelSelector=app%21%3Dx", func(e *entry) bool { return e.namespace == "m" && e.app != "x" }},
	{"", "fieldSelector=metadata.name%3Da", func(e *entry) bool { return e.name == "a" }},
	{"", "fieldSelector=spec.nodeName%3Dn1", func(e *entry) bool { return e.node == "n1" }},
}

// diffClient reads one cluster, or all of them, by version.
type diffClient struct {
	h       *chronicle
	number  int
	cluster int // -1: all
	site    *site
	// home is the site that the version is from, and shown the last site that it was sent
	// to.
	home, shown *site
	selector    *diffSelector
	protobuf    bool

	// state is the client's copy, at version. The version is from the time at and from an
	// era of the cluster, and was sent by the API server if direct is set, or else by a
	// replica. It is 0 before the first list.
	state   map[string]uint64
	version uint64
	at      time.Time
	era     int
	direct  bool
	// partial is the version of a list of which the client may have received a part of
	// the differences. Until that version, it need not have objects that were created and
	// deleted meanwhile.
	partial uint64
	watch   *diffWatch // nil while it does not watch
}

func (h *chronicle) newClient(number int) *diffClient {
	c := &diffClient{h: h, number: number, cluster: h.rng.IntN(len(h.journals)), site: h.sites[0]}
	c.selector = &diffSelectors[h.rng.IntN(len(diffSelectors))]
	if h.rng.IntN(4) == 0 {
		c.cluster = -1
	}
	c.protobuf = !h.odd && h.rng.IntN(2) == 0
	return c
}

func (c *diffClient) String() string {
	where := "all clusters"
	if c.cluster >= 0 {
		where = clusterName(c.cluster)
	}
	return fmt.Sprintf("client %d of %s (%s %s, protobuf %t) at %d of era %d", c.number, where, c.selector.namespace,
		c.selector.query, c.protobuf, c.version, c.era)
}

// act makes a random step.
func (c *diffClient) act() {
	h := c.h
	if c.watch != nil && !c.watch.stalled {
		c.read()
	}
	switch n := h.rng.IntN(12); {
	case c.version == 0 || n == 0:
		c.stop()
		c.list()
	case n == 1:
		c.stop()
		c.streamed()
	case n < 6 && c.cluster >= 0:
		c.stop()
		c.goDirect()
		c.resume()
	case n == 6:
		c.stop()
		c.site = h.sites[h.rng.IntN(len(h.sites))]
	case n == 7 && c.watch != nil && !c.watch.stalled:
		c.watch.stall()
		h.tally.slow.Add(1)
	case c.watch == nil:
		c.resume()
	case n > 9:
		c.stop()
	}
}

// finish lets the client catch up, and compares its state.
func (c *diffClient) finish() {
	for range 4 {
		switch {
		case c.version == 0:
			c.list()
			c.resume()
		case c.watch == nil || c.watch.stalled:
			c.stop()
			c.resume()
		}
		time.Sleep(61 * time.Second) // for a bookmark
		c.h.settle()
		if c.read(); c.watch != nil {
			break
		}
	}
	want := map[string]uint64{}
	for i, j := range c.h.journals {
		if c.cluster < 0 || c.cluster == i {
			maps.Copy(want, c.h.truth(i, j.era(), j.version, c.selector))
		}
	}
	if !maps.Equal(c.state, want) {
		c.h.t.Errorf("%v knows %v in the end, there is %v", c, c.state, want)
	}
	c.stop()
}

// path returns the path of a list.
func (c *diffClient) path(query string) string {
	path := "/fleet/api/v1/"
	if c.cluster >= 0 {
		path = "/clusters/" + clusterName(c.cluster) + "/api/v1/"
	}
	if c.selector.namespace != "" {
		path += "namespaces/" + c.selector.namespace + "/"
	}
	path += "pods?" + c.selector.query
	if c.cluster < 0 {
		path += "&watershedFleet=keyed-by-cluster"
	}
	return path + "&" + query
}

func (c *diffClient) request(ctx context.Context, query string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, c.path(query), http.NoBody)
	r.Header.Set("Accept", "application/json")
	if c.protobuf {
		r.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	}
	return r
}

// became records the client's state at a version that a replica has sent.
func (c *diffClient) became(version uint64) {
	switch {
	case c.cluster < 0 && version < c.version && (c.home == c.site || c.shown == c.site):
		c.h.t.Errorf("%v received version %d, which is before", c, version)
	case c.cluster >= 0 && c.watch != nil:
		c.era = c.watch.era
	case c.cluster >= 0:
		c.era = int(c.site.feed(c.cluster).State.Era())
	}
	c.version, c.at, c.direct, c.home, c.shown = version, time.Now(), false, c.site, nil
	if c.watch != nil {
		c.at = c.watch.came
	}
}

// check compares the client's state with the model at its version.
func (c *diffClient) check(when string) {
	if c.cluster < 0 || c.version < c.partial {
		return
	}
	if want := c.h.truth(c.cluster, c.era, c.version, c.selector); !maps.Equal(c.state, want) {
		c.h.t.Errorf("%s: %v knows %v, there was %v", when, c, c.state, want)
	}
}

// list reads the state from the replica, sometimes in pages.
func (c *diffClient) list() {
	query := ""
	if c.h.rng.IntN(3) == 0 {
		query = "limit=2"
	}
	c.state, c.partial = map[string]uint64{}, 0
	for from := ""; ; {
		w := httptest.NewRecorder()
		c.site.server.ServeHTTP(w, c.request(c.h.t.Context(), query+"&continue="+url.QueryEscape(from)))
		if w.Code == http.StatusGone && from != "" {
			c.expired(w.Body.Bytes())
			c.state, query, from = map[string]uint64{}, "", ""
			continue
		}
		if w.Code != http.StatusOK {
			c.h.t.Errorf("list: %v received %d: %s", c, w.Code, w.Body)
			return
		}
		list := c.decodeList(w.Body.Bytes())
		for i := range list.Items {
			c.learn("ADDED", &list.Items[i])
		}
		version, _ := strconv.ParseUint(list.ResourceVersion, 10, 64)
		c.became(version)
		if from = list.Continue; from == "" {
			break
		}
	}
	c.h.tally.lists.Add(1)
	c.check("list")
}

func (c *diffClient) decodeList(body []byte) *corev1.PodList {
	list := &corev1.PodList{}
	if c.protobuf {
		obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			c.h.t.Fatalf("%v: %v", c, err)
		}
		return obj.(*corev1.PodList)
	}
	var plain struct {
		Metadata struct{ ResourceVersion, Continue string }
		Items    []oddPod
	}
	if err := json.Unmarshal(body, &plain); err != nil {
		c.h.t.Fatalf("%v: %v in %s", c, err, body)
	}
	list.ResourceVersion, list.Continue = plain.Metadata.ResourceVersion, plain.Metadata.Continue
	for _, p := range plain.Items {
		list.Items = append(list.Items, p.pod())
	}
	return list
}

// oddPod has the fields that can be decoded from any pod.
type oddPod struct {
	Metadata struct {
		Namespace, Name, ResourceVersion string
		Annotations                      map[string]string
	}
}

func (o *oddPod) pod() (p corev1.Pod) {
	p.Namespace, p.Name, p.ResourceVersion, p.Annotations = o.Metadata.Namespace, o.Metadata.Name,
		o.Metadata.ResourceVersion, o.Metadata.Annotations
	return p
}

// learn applies an event.
func (c *diffClient) learn(typ string, p *corev1.Pod) uint64 {
	version, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	if err != nil {
		c.h.t.Errorf("%v: %s of %s has version %q", c, typ, p.Name, p.ResourceVersion)
	}
	cluster := p.Annotations["watershed.dev/cluster"]
	if c.cluster >= 0 {
		cluster = clusterName(c.cluster)
	}
	key := cluster + "/" + p.Namespace + "/" + p.Name
	if c.state[key] = version; typ == "DELETED" {
		delete(c.state, key)
	}
	return version
}

// goDirect continues at the API server: from the client's version, if that is one of the
// server's, or with a list.
func (c *diffClient) goDirect() {
	j := c.h.journals[c.cluster]
	j.mu.Lock()
	era, from, to := j.era(), c.version, j.version
	good := c.era == era && from >= j.forgotten && from <= to
	if good {
		to = from + uint64(c.h.rng.IntN(int(to-from)+1))
		for _, e := range j.eras[era] {
			if e.version <= from || e.version > to {
				continue
			}
			key := clusterName(c.cluster) + "/" + e.key()
			if c.state[key] = e.version; e.deleted || !c.selector.matches(e) {
				delete(c.state, key)
			}
		}
	}
	j.mu.Unlock()
	if !good {
		c.state, c.partial = c.h.truth(c.cluster, era, to, c.selector), 0
	}
	c.version, c.era, c.at, c.direct = to, era, time.Now(), true
	c.h.tally.switched.Add(1)
	c.check("at the API server")
}

// streamed reads the state as initial events.
func (c *diffClient) streamed() {
	c.state, c.partial = map[string]uint64{}, 0
	c.begin("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=")
}

// resume watches from the client's version.
func (c *diffClient) resume() {
	if c.version == 0 {
		return
	}
	if c.cluster >= 0 {
		feed, known := c.site.feed(c.cluster), &c.site.copies[c.cluster]
		// A replica cannot recognize that a version is from before a restore if it has
		// never had it, or only longer ago than its history goes back.
		if c.era != int(feed.State.Era()) &&
			(c.direct || c.home != c.site || c.h.small || time.Since(c.at) > 4*time.Minute ||
				time.Since(known.restored) > 4*time.Minute) {
			c.list()
		}
		// A client that has received a part of a list's differences may lack the end of an object's
		// match at a version that it has passed, see [view.Missed].
		if c.version < c.partial && c.home != c.site {
			c.list()
		}
		if c.version < known.first && c.era == int(feed.State.Era()) {
			c.h.tally.earlier.Add(1)
		}
		if c.version > feed.Version {
			c.h.tally.ahead.Add(1)
		}
	}
	c.shown = c.site
	c.begin("resourceVersion=" + strconv.FormatUint(c.version, 10))
}

// begin begins a watch.
func (c *diffClient) begin(query string) {
	rng := c.h.rng
	query += "&watch=true&allowWatchBookmarks=true"
	if rng.IntN(3) == 0 && !c.h.over {
		query += fmt.Sprintf("&timeoutSeconds=%d", 5+rng.IntN(100))
	}
	ctx, cancel := context.WithCancel(c.h.t.Context())
	w := &diffWatch{cancel: cancel, header: http.Header{}, done: make(chan struct{}), room: make(chan struct{}, 1)}
	w.initial = strings.HasPrefix(query, "sendInitialEvents")
	if c.cluster >= 0 {
		w.era = int(c.site.feed(c.cluster).State.Era())
	}
	c.watch = w
	r := c.request(ctx, query)
	go func() {
		defer close(w.done)
		c.site.server.ServeHTTP(w, r)
	}()
	c.h.tally.resumed.Add(1)
	c.h.settle()
	c.read()
}

// stop ends the watch. Events that were not read are lost.
func (c *diffClient) stop() {
	if c.watch == nil {
		return
	}
	if c.watch.initial {
		c.version = 0
	}
	c.watch.cancel()
	c.watch.fail(errors.New("gone"))
	<-c.watch.done
	c.watch = nil
}

// read applies the events that have arrived.
func (c *diffClient) read() {
	w := c.watch
	if w == nil {
		return
	}
	frames, code, over := w.take(c.protobuf)
	if code != 0 && code != http.StatusOK {
		c.h.t.Errorf("watch: %v received %d: %s", c, code, frames)
		return
	}
	if n := len(frames); n > 1 && !c.h.over && c.h.rng.IntN(4) == 0 {
		frames, over = frames[:c.h.rng.IntN(n)], true // it stops in the middle
	}
	for _, frame := range frames {
		if !c.event(frame) {
			c.stop()
			return
		}
	}
	if over {
		c.stop()
	}
}

// event applies an event, and reports whether the watch continues.
func (c *diffClient) event(frame []byte) bool {
	c.h.tally.events.Add(1)
	typ, p, status := c.decode(frame)
	switch typ {
	case "BOOKMARK":
		version, _ := strconv.ParseUint(p.ResourceVersion, 10, 64)
		c.watch.initial = false
		c.became(version)
		c.h.tally.bookmarks.Add(1)
		c.check("bookmark")
	case "ADDED", "MODIFIED", "DELETED":
		version := c.learn(typ, p)
		if c.cluster < 0 || c.watch.initial {
			break
		}
		c.became(version)
		for _, g := range c.site.copies[c.cluster].gaps {
			if g[0] < version && version < g[1] {
				c.partial = max(c.partial, g[1])
			}
		}
	default:
		if !strings.Contains(string(status), "Expired") {
			c.h.t.Errorf("%v received %s", c, status)
			return false
		}
		c.expired(status)
		c.stop()
		c.list()
		return false
	}
	return true
}

// expired checks that there is a reason for an expired version.
func (c *diffClient) expired(status []byte) {
	reason := c.h.reason(c.site, c)
	if c.h.tally.expire(reason); reason == "" {
		c.h.t.Errorf("%v received %s without a reason: the copy is %+v", c, status, c.site.copies)
	}
}

func (c *diffClient) decode(frame []byte) (typ string, p *corev1.Pod, status []byte) {
	var err error
	if c.protobuf {
		var raw []byte
		if typ, raw, err = protoEvents(bytes.NewReader(frame))(); err == nil && typ != "ERROR" {
			obj, _, failed := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
			if err = failed; err == nil {
				p = obj.(*corev1.Pod)
			}
		}
		status = raw
	} else {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		var o oddPod
		if err = json.Unmarshal(frame, &e); err == nil && e.Type != "ERROR" {
			err = json.Unmarshal(e.Object, &o)
		}
		pod := o.pod()
		typ, p, status = e.Type, &pod, e.Object
	}
	if err != nil {
		c.h.t.Fatalf("%v: %v in %q", c, err, frame)
	}
	return typ, p, status
}
