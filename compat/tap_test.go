// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package compat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/watershed-project/watershed/compat"
	"github.com/watershed-project/watershed/internal/expect"
)

// TestTap_clientReadsNothing checks that streamed lists and watches reach the informer, and
// that the client reads and decodes nothing of them. A list that is not streamed is read by
// the client.
func TestTap_clientReadsNothing(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		for _, streams := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streamed %v", media, streams), func(t *testing.T) {
				s := serve(t, media, versioned(pod("a", "1"), 1), versioned(labelled(pod("a", "2"), "x"), 2))
				later := []watch.Event{
					{Type: watch.Modified, Object: versioned(labelled(pod("a", "2"), "y"), 11)},
					{Type: watch.Deleted, Object: versioned(pod("a", "1"), 12)},
				}
				s.watch = func(w http.ResponseWriter, r *http.Request) {
					switch asked := r.URL.Query().Get("sendInitialEvents") != ""; {
					case asked && streams:
						initial := []watch.Event{
							{Type: watch.Added, Object: versioned(pod("a", "1"), 1)},
							{Type: watch.Added, Object: versioned(labelled(pod("a", "2"), "x"), 2)},
							bookmark(10),
						}
						s.stream(w, r, append(initial, later...)...)
					case asked:
						s.refuseStream(w, r)
					default:
						s.stream(w, r, later...)
					}
				}
				cfg, read := s.config()
				i := podInformer(podsOf(clientset(t, cfg)), 0, nil)
				stop := synced(t, i)
				expect.Soon(t, "the deletion", func() bool { return len(i.GetStore().ListKeys()) == 1 })
				obj, _, err := i.GetStore().GetByKey("a/2")
				if err != nil {
					t.Fatal(err)
				}
				if p := obj.(*corev1.Pod); p.Labels["label"] != "y" || p.TypeMeta != (metav1.TypeMeta{}) ||
					p.ResourceVersion != "11" {
					t.Errorf("it is %v", p)
				}
				expect.Soon(t, "version 12", func() bool { return i.LastSyncResourceVersion() == "12" })
				if n := read.Load(); streams && n != 0 {
					t.Errorf("the client read %d bytes", n)
				}
				if n := s.watched.Load(); n != 0 {
					t.Errorf("the client read %d bytes of watches", n)
				}
				stop()
				expect.Soon(t, "the end of the watch at the server", func() bool { return s.open.Load() == 0 })
			})
		}
	}
}

// counted is a type that counts how often it is decoded.
type counted struct {
	metav1.PartialObjectMetadata
}

var decodings atomic.Int32

func (c *counted) DeepCopyObject() runtime.Object { panic("not needed") }

func (c *counted) UnmarshalJSON(text []byte) error {
	decodings.Add(1)
	return json.Unmarshal(text, &c.PartialObjectMetadata)
}

// TestTap_nothingIsDecodedBeforeSomebodyLooks checks that objects are decoded only when
// they are read. The namespace index does not decode them either.
func TestTap_nothingIsDecodedBeforeSomebodyLooks(t *testing.T) {
	decodings.Store(0)
	s := serve(t, runtime.ContentTypeJSON)
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		s.stream(w, r, watch.Event{
			Type: watch.Added, Object: versioned(pod("a", "1"), 1),
		}, watch.Event{Type: watch.Added, Object: versioned(pod("a", "2"), 2)},
			watch.Event{Type: watch.Added, Object: versioned(pod("b", "1"), 3)}, bookmark(10))
	}
	cfg, _ := s.config()
	i := compat.NewInformer(quiet)(podsOf(clientset(t, cfg)), &counted{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	r := join(t, i, cache.ResourceEventHandlerFuncs{})
	synced(t, i)
	expect.Soon(t, "the handler's sync", r.HasSynced)
	if keys, err := i.GetIndexer().IndexKeys(cache.NamespaceIndex, "a"); err != nil || len(keys) != 2 {
		t.Errorf("keys in a: %v %v", keys, err)
	}
	if n := decodings.Load(); n != 0 {
		t.Errorf("%d objects were decoded before a read", n)
	}
	objs, err := i.GetIndexer().ByIndex(cache.NamespaceIndex, "b")
	if err != nil || len(objs) != 1 || objs[0].(*counted).Name != "1" {
		t.Errorf("in b: %v %v", objs, err)
	}
	if n := decodings.Load(); n != 1 {
		t.Errorf("%d objects were decoded, and one was looked at", n)
	}
}

// TestTap_errorsStayTheClients checks that the client decodes errors, and retries if the
// response requests it.
func TestTap_errorsStayTheClients(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		name   string
		status *apierrors.StatusError
		is     func(error) bool
	}{
		{"403", apierrors.NewForbidden(pods, "", errors.New("no")), apierrors.IsForbidden},
		{"410", apierrors.NewResourceExpired("no"), apierrors.IsResourceExpired},
		{"500", apierrors.NewInternalError(errors.New("no")), apierrors.IsInternalError},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, runtime.ContentTypeProtobuf)
			s.list = func(w http.ResponseWriter, r *http.Request) {
				if v := r.URL.Query().Get("resourceVersion"); c.name == "410" && v == "" {
					// A version that is too old is reported only if the newest was
					// requested.
					s.send(w, http.StatusForbidden, &apierrors.NewForbidden(pods, "", errors.New("no")).ErrStatus)
					return
				}
				s.send(w, int(c.status.ErrStatus.Code), &c.status.ErrStatus)
			}
			cfg, _ := s.config()
			i := podInformer(listOnly{podsOf(clientset(t, cfg))}, 0, nil)
			failures := make(chan error, 100)
			if err := i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failures <- err }); err != nil {
				t.Fatal(err)
			}
			run(t, i)
			err := <-failures
			if c.name == "410" {
				if !apierrors.IsForbidden(err) {
					t.Errorf("the handler received %v, not the error of the list of the newest version", err)
				}
				return
			}
			if !c.is(err) {
				t.Errorf("the handler received %v", err)
			}
		})
	}
}

func TestTap_clientRetries(t *testing.T) {
	s := serve(t, runtime.ContentTypeJSON, versioned(pod("a", "1"), 1))
	list := s.list
	s.list = func(w http.ResponseWriter, r *http.Request) {
		if s.lists.Load() < 3 {
			w.Header().Set("Retry-After", "0")
			s.send(w, http.StatusTooManyRequests, &apierrors.NewTooManyRequests("no", 0).ErrStatus)
			return
		}
		list(w, r)
	}
	cfg, _ := s.config()
	i := podInformer(listOnly{podsOf(clientset(t, cfg))}, 0, nil)
	began := time.Now()
	synced(t, i)
	if n := s.lists.Load(); n != 3 {
		t.Errorf("it took %d lists, want two that are refused and one", n)
	}
	if d := time.Since(began); d > patience/2 {
		t.Errorf("it took %v", d)
	}
}

// TestTap_leavesOthersAlone checks requests that do not come from our informers.
func TestTap_leavesOthersAlone(t *testing.T) {
	s := serve(t, runtime.ContentTypeProtobuf, versioned(pod("a", "1"), 1))
	cfg, read := s.config()
	list, err := clientset(t, cfg).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || read.Load() == 0 {
		t.Errorf("a list: %v %v, of %d bytes", list, err, read.Load())
	}
}

// TestTap_clientsTimeoutIsForTheAnswersBeginning checks that the client's timeout ends
// with its response, while the informer continues to read the watch.
func TestTap_clientsTimeoutIsForTheAnswersBeginning(t *testing.T) {
	const timeout = 300 * time.Millisecond
	s := serve(t, runtime.ContentTypeJSON, versioned(pod("a", "1"), 1))
	changed := make(chan struct{})
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			s.refuseStream(w, r)
			return
		}
		w.Header().Set("Content-Type", s.media)
		w.(http.Flusher).Flush()
		<-changed
		s.stream(w, r, watch.Event{Type: watch.Added, Object: versioned(pod("a", "2"), 11)})
	}
	cfg, _ := s.config()
	cfg.Timeout = timeout
	i := podInformer(podsOf(clientset(t, cfg)), 0, nil)
	synced(t, i)
	expect.Soon(t, "the watch", func() bool { return s.watches.Load() > 1 })
	time.Sleep(2 * timeout) // the client's timeout must not end the watch
	close(changed)
	expect.Soon(t, "the change", func() bool { return len(i.GetStore().ListKeys()) == 2 })
	if n := s.watches.Load(); n != 2 {
		t.Errorf("there were %d watches, want one that is refused and one", n)
	}
}

// TestTap_endsWithTheInformer checks that the request ends with the informer, at any
// stage of the response.
func TestTap_endsWithTheInformer(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin bool
	}{{"before the header", false}, {"in the body", true}} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, runtime.ContentTypeJSON)
			ended := make(chan struct{})
			s.list = func(w http.ResponseWriter, r *http.Request) {
				if c.begin {
					w.Header().Set("Content-Type", s.media)
					_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[`)
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
				close(ended)
			}
			cfg, _ := s.config()
			i := podInformer(podsOf(clientset(t, cfg)), 0, nil)
			stop := run(t, i)
			expect.Soon(t, "the list", func() bool { return s.lists.Load() == 1 })
			time.Sleep(10 * time.Millisecond) // the informer reads the beginning of the response, if there is one
			stop()
			<-ended
		})
	}
}

// TestTap_whatIsNotOursToReadIsTheClients checks that the client reads a response in an
// encoding that we do not support.
func TestTap_whatIsNotOursToReadIsTheClients(t *testing.T) {
	s := serve(t, runtime.ContentTypeJSON)
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON+";as=Other")
		s.stream(w, r, watch.Event{Type: watch.Added, Object: versioned(pod("a", "1"), 1)}, bookmark(10))
	}
	cfg, _ := s.config()
	i := podInformer(podsOf(clientset(t, cfg)), 0, nil)
	synced(t, i)
	expectNames(t, "List", i.GetStore().List(), "a/1")
	if s.watched.Load() == 0 {
		t.Error("the response was not read")
	}
}

// TestTap_clientHearsWarnings checks that the client handles warnings, though it does not
// see the events.
func TestTap_clientHearsWarnings(t *testing.T) {
	s := serve(t, runtime.ContentTypeJSON, versioned(pod("a", "1"), 1))
	s.watch = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warning", `299 - "pods are old"`)
		s.stream(w, r, bookmark(10))
	}
	cfg, _ := s.config()
	heard := make(chan string, 10)
	cfg.WarningHandler = warnings(heard)
	synced(t, podInformer(podsOf(clientset(t, cfg)), 0, nil))
	if text := <-heard; !strings.Contains(text, "pods are old") {
		t.Errorf("it heard %q", text)
	}
}

type warnings chan string

func (w warnings) HandleWarningHeader(_ int, _, text string) { w <- text }

// TestTap_isFoundThrough checks that the transport behind the tap can be found by
// unwrapping.
func TestTap_isFoundThrough(t *testing.T) {
	inner := &http.Transport{}
	wrapped, ok := compat.Tap(inner).(interface{ WrappedRoundTripper() http.RoundTripper })
	if !ok || wrapped.WrappedRoundTripper() != inner {
		t.Error("the transport inside cannot be found")
	}
}
