// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

// Package miniature is an API server with a few pods, for the examples in the packages'
// documentation: they run without a cluster. It serves discovery, lists and watches of
// pods as JSON, and ignores selectors.
//
// An example chooses the names, the nodes and the labels of its pods, and changes them while
// it runs. Package simulated cannot do that: it generates pods from templates in which every
// name has the same length.
package miniature

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Server is a running API server. All methods are safe for concurrent use.
type Server struct {
	server *httptest.Server

	// mu guards the fields below.
	mu      sync.Mutex
	version int
	pods    map[string]*corev1.Pod
	events  []event
	// changed is closed and replaced with every event.
	changed chan struct{}
}

// event is a change, as watches send it.
type event struct {
	version int
	typ     watch.EventType
	pod     *corev1.Pod
}

// New starts a server. The caller must close it.
func New(pods ...*corev1.Pod) *Server {
	s := &Server{pods: map[string]*corev1.Pod{}, changed: make(chan struct{})}
	for _, pod := range pods {
		s.Put(pod)
	}
	s.server = httptest.NewServer(s)
	return s
}

// Config returns access to the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.server.URL} }

// Close ends the server and all connections to it.
func (s *Server) Close() {
	// A reflector connects again at once, and Close would wait for the end of its new watch.
	_ = s.server.Listener.Close()
	s.server.CloseClientConnections()
	s.server.Close()
}

// Pod returns a pod to put into a server.
func Pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// Put creates or updates a pod.
func (s *Server) Put(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, typ := pod.Namespace+"/"+pod.Name, watch.Added
	if s.pods[key] != nil {
		typ = watch.Modified
	}
	s.pods[key] = s.changeLocked(typ, pod)
}

// Delete deletes a pod, which must exist.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	s.changeLocked(watch.Deleted, s.pods[key])
	delete(s.pods, key)
}

// changeLocked sets the next version of a pod and notifies the watches.
func (s *Server) changeLocked(typ watch.EventType, pod *corev1.Pod) *corev1.Pod {
	s.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(s.version)
	s.events = append(s.events, event{s.version, typ, pod})
	close(s.changed)
	s.changed = make(chan struct{})
	return pod
}

// ServeHTTP answers as an API server.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace := ""
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); ok && strings.HasSuffix(rest, "/pods") {
		namespace = strings.TrimSuffix(rest, "/pods")
	}
	switch {
	case r.URL.Path == "/api":
		reply(w, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		reply(w, &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}})
	case r.URL.Path == "/api/v1":
		reply(w, &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{
				{
					Name:         "pods",
					SingularName: "pod",
					Namespaced:   true,
					Kind:         "Pod",
					Verbs:        metav1.Verbs{"get", "list", "watch"},
				},
			},
		})
	case r.URL.Path != "/api/v1/pods" && namespace == "":
		http.NotFound(w, r)
	case r.URL.Query().Get("sendInitialEvents") == "true":
		http.Error(w, "initial events are not supported", http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, namespace)
	default:
		reply(w, s.list(namespace))
	}
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func (s *Server) list(namespace string) *corev1.PodList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	list.ResourceVersion = strconv.Itoa(s.version)
	for _, pod := range s.pods {
		if namespace == "" || pod.Namespace == namespace {
			list.Items = append(list.Items, *pod)
		}
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return list
}

// watch sends the changes after a version until the client goes.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	after, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")) // 0 if absent: from the start
	w.Header().Set("Content-Type", "application/json")
	for {
		s.mu.Lock()
		events, changed := s.events, s.changed
		s.mu.Unlock()
		for _, e := range events {
			if e.version <= after || namespace != "" && e.pod.Namespace != namespace {
				continue
			}
			after = e.version
			// the client may be gone
			_ = json.NewEncoder(w).Encode(metav1.WatchEvent{
				Type:   string(e.typ),
				Object: runtime.RawExtension{Object: e.pod},
			})
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
