// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	tableType   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialType = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// script is an origin's pods, defined by the test: initial are the initial events of
// every watch that requests them, and later are those that watches send after that. It
// refuses lists.
type script struct {
	protobuf bool
	initial  [][]byte
	later    chan []byte
}

// answer serves the pods of an origin in place of the simulated cluster.
func (s *script) answer(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/api/v1/pods" {
		return false
	}
	query := r.URL.Query()
	if query.Get("watch") == "" {
		http.Error(w, "no lists here", http.StatusNotImplemented)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	if s.protobuf {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	}
	send := func(t string, raw []byte) {
		_, _ = w.Write(s.frame(t, raw))
		_ = http.NewResponseController(w).Flush()
	}
	if query.Get("sendInitialEvents") == "true" {
		for _, raw := range s.initial {
			send("ADDED", raw)
		}
		send("BOOKMARK", s.bookmark())
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case raw := <-s.later:
			send("MODIFIED", raw)
		case <-r.Context().Done():
			return true
		}
	}
}

func (s *script) bookmark() []byte {
	mark := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "100",
			Annotations:     map[string]string{"k8s.io/initial-events-end": "true"},
		},
	}
	if s.protobuf {
		raw, _ := mark.Marshal()
		return raw
	}
	mark.Kind, mark.APIVersion = "Pod", "v1"
	raw, _ := json.Marshal(mark)
	return raw
}

func (s *script) frame(t string, raw []byte) []byte {
	if !s.protobuf {
		return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", t, raw)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}
	body, _ := unknown.Marshal()
	event := metav1.WatchEvent{Type: t, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), body...)}}
	message, _ := event.Marshal()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// scriptedPod returns a pod. A broken one has readable metadata, but cannot be decoded.
func scriptedPod(protobuf bool, name string, version int, broken bool) []byte {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, ResourceVersion: fmt.Sprint(version),
		Labels: map[string]string{"broken": fmt.Sprint(broken)},
	}}
	pod.Spec.NodeName = "node-1"
	if protobuf {
		raw, _ := pod.Marshal()
		if broken {
			raw = append(raw, 2<<3|2, 2, 0xff, 0xff) // a spec that ends within its first tag
		}
		return raw
	}
	pod.Kind, pod.APIVersion = "Pod", "v1"
	raw, _ := json.Marshal(pod)
	if broken {
		return []byte(strings.Replace(string(raw), `"containers":null`, `"containers":"none"`, 1))
	}
	return raw
}

// newScripted returns a replica of one cluster whose pods are good-0 to good-4 and, if
// broken, bad.
func newScripted(t *testing.T, protobuf, broken bool) (*simulatedReplica, *script) {
	t.Helper()
	s := &script{protobuf: protobuf, later: make(chan []byte)}
	for i := range 5 {
		s.initial = append(s.initial, scriptedPod(protobuf, fmt.Sprint("good-", i), 10+i, false))
	}
	if broken {
		s.initial = append(s.initial, scriptedPod(protobuf, "bad", 20, true))
	}
	w, _ := newOrigins(t, 1, func(all []*origin) { all[0].answers(s.answer) })
	w.until(http.StatusOK, w.pods(0)+"?labelSelector=broken%3Dfalse")
	return w, s
}

// whole returns the body of a successful response, or the error that the client sees.
func (w *simulatedReplica) whole(path string, header ...string) ([]byte, http.Header, error) {
	w.t.Helper()
	resp, err := w.get(w.t.Context(), path, header...)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return body, resp.Header, err
}

// A built-in kind that the cluster sends as JSON reaches clients of protobuf: as JSON if
// they accept it, or else converted.
func TestJSONOrigin_isCompleteInProtobuf(t *testing.T) {
	w, s := newScripted(t, false, false)
	all := "/fleet/api/v1/pods"
	for _, path := range []string{w.pods(0), all} {
		for accept, want := range map[string]string{
			"application/json":                 "application/json",
			protobufType:                       protobufType,
			protobufType + ",application/json": "application/json",
			protobufType + ", */*":             "application/json",
		} {
			body, header, err := w.whole(path, "Accept", accept)
			if err != nil {
				t.Fatal(err)
			}
			list, err := decodeList(body)
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 5 || list.Items[4].Spec.NodeName != "node-1" || header.Get("Content-Type") != want {
				t.Errorf("%s, Accept %s: %d pods as %s, want 5 as %s", path, accept, len(list.Items),
					header.Get("Content-Type"), want)
			}
			if want == "application/json" && strings.Contains(string(body), `"items":[{"kind"`) {
				t.Errorf("%s, Accept %s: items have a kind, which those of kube-apiserver do not", path, accept)
			}
		}
		if body, _, err := w.whole(path, "Accept", protobufType+partialType); err != nil ||
			strings.Count(string(body), "good-") != 5 {
			t.Errorf("%s: metadata in protobuf: %v", path, err)
		}
	}
	one := "/clusters/" + w.clusters.Cluster(0).Name() + "/api/v1/namespaces/shop/pods/good-3"
	if body, _, err := w.whole(one, "Accept", protobufType); err != nil ||
		!strings.HasPrefix(string(body), "k8s\x00") || !strings.Contains(string(body), "node-1") {
		t.Errorf("get in protobuf: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := w.get(ctx, w.pods(0)+
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "Accept",
		protobufType)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	enough, seen := errors.New("enough"), 0
	err = events(resp.Body, true, func(kind string, pod *corev1.Pod) error {
		switch {
		case kind == "BOOKMARK":
			s.later <- scriptedPod(false, "good-0", 110, false)
		case kind == "MODIFIED" && pod.Spec.NodeName == "node-1":
			return enough
		default:
			seen++
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 5 {
		t.Errorf("a watch in protobuf had %d initial pods and ended with %v", seen, err)
	}
}

// An object that cannot be sent fails the response. A shorter list would look like a
// deletion.
func TestBrokenObject_failsTheResponse(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		w, _ := newScripted(t, protobuf, true)
		name := w.clusters.Cluster(0).Name()
		lists := []string{
			w.pods(0), w.pods(0) + "?limit=20", "/fleet/api/v1/pods",
			w.pods(0) + "?fieldSelector=status.phase%21%3DRunning",
		}
		accepts := []string{tableType, tableType + ";pretty=1", strings.Replace(tableType, "json", "yaml", 1)}
		if protobuf {
			accepts = append(accepts, "application/json", "application/yaml", "application/json;pretty=1")
		} else {
			accepts = append(accepts, protobufType)
		}
		for _, path := range lists {
			for _, accept := range accepts {
				for _, encoding := range []string{"identity", "gzip"} {
					if body, _, err := w.whole(path, "Accept", accept, "Accept-Encoding", encoding); err == nil {
						t.Errorf("protobuf %v, %s, Accept %s: a list without the broken pod: %.200q", protobuf, path,
							accept, body)
					} else if path == lists[0] && !strings.Contains(err.Error(), "500") {
						t.Errorf("protobuf %v, %s, Accept %s: %v, want a 500", protobuf, path, accept, err)
					}
				}
			}
		}
		for _, path := range []string{
			"/clusters/" + name + "/api/v1/namespaces/shop/pods/bad", "/fleet/api/v1/namespaces/shop/pods/bad",
		} {
			for _, accept := range accepts {
				if body, _, err := w.whole(path, "Accept", accept); err == nil {
					t.Errorf("protobuf %v, %s, Accept %s: %.200q", protobuf, path, accept, body)
				}
			}
		}
		// Clients that do not request the object are not affected.
		for _, accept := range accepts {
			if _, _, err := w.whole(w.pods(0)+"?labelSelector=broken%3Dfalse", "Accept", accept); err != nil {
				t.Errorf("protobuf %v, Accept %s: the others: %v", protobuf, accept, err)
			}
		}
	}
}

// An event that cannot be sent ends the watch with an error, whether it is one of the
// initial events or a later one.
func TestBrokenObject_endsTheWatch(t *testing.T) {
	const all = "/fleet/api/v1/pods"
	for _, protobuf := range []bool{false, true} {
		broken, _ := newScripted(t, protobuf, true)
		later, s := newScripted(t, protobuf, false)
		shapes := []string{"whole", "table"}
		if protobuf {
			shapes = append(shapes, "field")
		}
		for i, shape := range shapes {
			for _, path := range []string{broken.pods(0), all} {
				broken.endsWithError(fmt.Sprintf("initial events, protobuf %v, %s, %s", protobuf, path, shape), path,
					shape, "identity", protobuf, nil)
				broken.endsWithError(fmt.Sprintf("initial events, protobuf %v, %s, %s, gzip", protobuf, path, shape),
					path, shape, "gzip", protobuf, nil)
			}
			for j, path := range []string{later.pods(0), all} {
				v := 200 + 10*i + 2*j
				later.endsWithError(fmt.Sprintf("protobuf %v, %s, %s", protobuf, path, shape), path, shape, "identity",
					protobuf, func() {
						s.later <- scriptedPod(protobuf, "bad", v, true)
					})
				s.later <- scriptedPod(protobuf, "bad", v+1, false)
				for _, path := range []string{later.pods(0), all} { // until the object can be read again
					later.until(http.StatusOK, path+"?fieldSelector=spec.nodeName%3Dnode-1")
				}
			}
		}
	}
}

// endsWithError watches with initial events, calls then after them, and expects an event
// with the error that shop/bad cannot be sent.
func (w *simulatedReplica) endsWithError(what, path, shape, encoding string, protobuf bool, then func()) {
	w.t.Helper()
	query := "?watch=1&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&watershedFleet=keyed-by-cluster"
	accept, framed := "application/json", false
	switch {
	case shape == "table":
		accept = tableType
	case shape == "field":
		query += "&fieldSelector=spec.nodeName%3Dnode-1"
	case !protobuf:
		accept, framed = protobufType, true
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	resp, err := w.get(ctx, path+query, "Accept", accept, "Accept-Encoding", encoding)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(resp.Body); err != nil {
			w.t.Fatal(err)
		}
	}
	next := jsonEvents(body)
	if framed {
		next = protoEvents(body)
	}
	for {
		kind, raw, err := next()
		switch {
		case err != nil:
			w.t.Fatalf("%s: the watch ended without an error event: %v", what, err)
		case kind == "ERROR":
			if !strings.Contains(string(raw), "shop/bad") {
				w.t.Errorf("%s: the error does not name the object: %q", what, raw)
			}
			return
		case kind == "BOOKMARK" && then == nil:
			w.t.Fatalf("%s: a bookmark after initial events of which one is missing", what)
		case kind == "BOOKMARK":
			go then()
			then = func() {}
		}
	}
}
