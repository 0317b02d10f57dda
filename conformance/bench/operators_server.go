// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/watershed-project/watershed/conformance/bench/harness"
)

const (
	// operatorsStride is the distance between resources that change one after the other.
	operatorsStride = 7919
	// changePath is the last part of the path of requests for changes.
	changePath = "/change"
)

// operatorsServer sends the objects of the operators as an API server does: as watches
// that begin with the state, in protobuf for built-in kinds and metadata and in JSON for
// custom resources. Each process has a path of its own, the name of the operator and a
// number, and requests its changes itself. Objects are made when they are sent.
type operatorsServer struct {
	operators []operator

	// mu guards the watches of each process's first kind, and the number of its changes.
	mu      sync.Mutex
	watches map[string]chan int
	changes map[string]int
}

func newOperatorsServer(all []operator) *operatorsServer {
	return &operatorsServer{operators: all, watches: map[string]chan int{}, changes: map[string]int{}}
}

// ServeHTTP serves /OPERATOR/PROCESS/change and /OPERATOR/PROCESS/api…, where OPERATOR is a
// number.
func (s *operatorsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	number, err := strconv.Atoi(parts[0])
	if err != nil || number >= len(s.operators) || len(parts) != 3 {
		http.NotFound(w, r)
		return
	}
	op, process := &s.operators[number], parts[0]+"/"+parts[1]
	if "/"+parts[2] == changePath {
		s.change(w, process, op.batch())
		return
	}
	for i := range op.kinds {
		k := &op.kinds[i]
		if k.path() == "/"+parts[2] && r.URL.Query().Get("sendInitialEvents") == "true" {
			s.watch(w, r, k, process, i == 0)
			return
		}
	}
	http.Error(w, "only watches with initial events are served", http.StatusNotFound)
}

// path returns the path of the kind's resource.
func (k *cachedKind) path() string {
	if k.gvk.Group == "" {
		return "/api/" + k.gvk.Version + "/" + k.plural()
	}
	return "/apis/" + k.gvk.Group + "/" + k.gvk.Version + "/" + k.plural()
}

// change changes the next resources of the first kind for one process.
func (s *operatorsServer) change(w http.ResponseWriter, process string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.watches[process]
	if to == nil {
		http.Error(w, "the process does not watch", http.StatusConflict)
		return
	}
	for range n {
		to <- s.changes[process]
		s.changes[process]++
	}
}

// watch sends the state, and then changes if the kind is the operator's first.
func (s *operatorsServer) watch(w http.ResponseWriter, r *http.Request, k *cachedKind, process string, first bool) {
	accept := r.Header.Get("Accept")
	f := form{kind: k, metadata: strings.Contains(accept, "as=PartialObjectMetadata"), protobuf: strings.HasPrefix(accept, runtime.ContentTypeProtobuf)}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", f.contentType())
	for i := range k.count {
		o := k.make(i)
		if !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		if err := f.write(w, watch.Added, o); err != nil {
			return
		}
	}
	if err := f.write(w, watch.Bookmark, f.bookmark()); err != nil {
		return
	}
	w.(http.Flusher).Flush()
	changes := make(chan int, operatorsBatch)
	if first {
		s.mu.Lock()
		s.watches[process] = changes
		s.mu.Unlock()
	}
	for {
		select {
		case n := <-changes:
			if err := f.write(w, watch.Modified, k.changed(n)); err != nil {
				return
			}
			if len(changes) == 0 {
				w.(http.Flusher).Flush()
			}
		case <-r.Context().Done():
			return
		}
	}
}

// changed returns the object of change n with its new state.
func (k *cachedKind) changed(n int) client.Object {
	o := k.make(n * operatorsStride % k.count)
	o.SetResourceVersion(strconv.Itoa(operatorsVersion + k.count + n))
	o.SetGeneration(int64(n + 2))
	all := o.GetAnnotations()
	all["example.com/changed"] = strconv.Itoa(n)
	o.SetAnnotations(all)
	return o
}

// form is how the objects of a kind are sent.
type form struct {
	kind               *cachedKind
	metadata, protobuf bool
}

func (f form) contentType() string {
	if !f.protobuf {
		return runtime.ContentTypeJSON
	}
	if f.metadata {
		return runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1;stream=watch"
	}
	return runtime.ContentTypeProtobuf + ";stream=watch"
}

// bookmark returns the object that ends the state.
func (f form) bookmark() client.Object {
	o := f.kind.make(0)
	o.SetResourceVersion(strconv.Itoa(operatorsVersion + f.kind.count))
	o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o
}

// write writes one event.
func (f form) write(w http.ResponseWriter, event watch.EventType, o client.Object) error {
	o.GetObjectKind().SetGroupVersionKind(f.kind.gvk)
	if f.metadata {
		m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
			CreationTimestamp: o.GetCreationTimestamp(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(), ManagedFields: o.GetManagedFields(),
		}}
		m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		m.APIVersion = "meta.k8s.io/v1"
		o = m
	}
	if f.protobuf {
		frame, err := harness.EncodeObjectEvent(event, o)
		if err == nil {
			_, err = w.Write(frame)
		}
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = fmt.Fprintf(w, "{\"type\":%q,\"object\":%s}\n", event, text)
	}
	return err
}
