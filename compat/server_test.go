// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
)

// apiServer imitates an API server, in the encoding that the test sets.
type apiServer struct {
	t     *testing.T
	media string
	// list and watch are the test's handlers.
	list, watch func(w http.ResponseWriter, r *http.Request)
	// lists and watches count requests, open counts the current watches.
	lists, watches, open atomic.Int32
	// watched counts the bytes of watches that clients of config read.
	watched atomic.Int64
	url     string
}

// serve returns a server that has pods and does not support initial events.
func serve(t *testing.T, media string, pods ...*corev1.Pod) *apiServer {
	t.Helper()
	s := &apiServer{t: t, media: media}
	s.list = func(w http.ResponseWriter, _ *http.Request) { s.send(w, http.StatusOK, s.podList(pods...)) }
	s.watch = s.refuseStream
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		s.lists.Add(1)
		s.list(w, r)
		return
	}
	s.watches.Add(1)
	s.open.Add(1)
	defer s.open.Add(-1)
	s.watch(w, r)
}

// refuseStream is a watch without events that rejects initial events.
func (s *apiServer) refuseStream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		s.send(w, http.StatusUnprocessableEntity,
			&apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil).ErrStatus)
		return
	}
	s.stream(w, r)
}

// stream is a watch that continues until the client ends it.
func (s *apiServer) stream(w http.ResponseWriter, r *http.Request, events ...watch.Event) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", s.streamMedia())
	}
	for _, e := range events {
		if _, err := w.Write(s.frame(e)); err != nil {
			s.t.Error(err)
		}
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (s *apiServer) streamMedia() string {
	if s.media == runtime.ContentTypeProtobuf {
		return s.media + ";stream=watch"
	}
	return s.media
}

func (s *apiServer) podList(pods ...*corev1.Pod) *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

// send responds with an object.
func (s *apiServer) send(w http.ResponseWriter, code int, obj runtime.Object) {
	w.Header().Set("Content-Type", s.media)
	w.WriteHeader(code)
	if _, err := w.Write(s.encode(obj)); err != nil {
		s.t.Error(err)
	}
}

func (s *apiServer) info() runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), s.media)
	if !ok {
		s.t.Errorf("no serializer for %q", s.media)
	}
	return info
}

// encode encodes an object as a server does.
func (s *apiServer) encode(obj runtime.Object) []byte {
	var b bytes.Buffer
	encoder := scheme.Codecs.EncoderForVersion(s.info().Serializer, corev1.SchemeGroupVersion)
	if err := encoder.Encode(obj, &b); err != nil {
		s.t.Error(err)
	}
	return b.Bytes()
}

// frame encodes an event as a server does.
func (s *apiServer) frame(e watch.Event) []byte {
	var b bytes.Buffer
	object := s.encode(e.Object)
	if s.media == runtime.ContentTypeJSON {
		if err := json.NewEncoder(&b).Encode(map[string]any{"type": e.Type,
			"object": json.RawMessage(object)}); err != nil {
			s.t.Error(err)
		}
		return b.Bytes()
	}
	stream := s.info().StreamSerializer
	event := &metav1.WatchEvent{Type: string(e.Type), Object: runtime.RawExtension{Raw: object}}
	if err := stream.Encode(event, stream.NewFrameWriter(&b)); err != nil {
		s.t.Error(err)
	}
	return b.Bytes()
}

// meter counts the bytes that the client reads of responses to lists and watches, and
// separately the bytes of watches.
type meter struct {
	next          http.RoundTripper
	read, watched *atomic.Int64
}

func (m meter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(r)
	if err == nil {
		resp.Body = metered{resp.Body, m.read}
		if r.URL.Query().Get("watch") != "" && resp.StatusCode == http.StatusOK {
			resp.Body = metered{resp.Body, m.watched}
		}
	}
	return resp, err
}

type metered struct {
	io.ReadCloser
	read *atomic.Int64
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	m.read.Add(int64(n))
	return n, err
}

// config returns a client's configuration with a tap and, around it, a meter of the bytes
// that the client reads itself.
func (s *apiServer) config() (*rest.Config, *atomic.Int64) {
	read := &atomic.Int64{}
	cfg := &rest.Config{Host: s.url, ContentConfig: rest.ContentConfig{ContentType: s.media}, QPS: -1}
	cfg.Wrap(compat.Tap)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return meter{next, read, &s.watched} })
	return cfg, read
}

// clientset returns a client for the duration of the test.
func clientset(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// podsOf returns a ListerWatcher of a client's pods.
func podsOf(c kubernetes.Interface) *cache.ListWatch {
	return cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", "", fields.Everything())
}

func versioned(p *corev1.Pod, version int) *corev1.Pod {
	p.ResourceVersion = fmt.Sprint(version)
	return p
}

// bookmark returns the event that ends the initial events.
func bookmark(version int) watch.Event {
	p := versioned(&corev1.Pod{}, version)
	p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return watch.Event{Type: watch.Bookmark, Object: p}
}
