// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package watershed_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// podKind is the kind of the pods in these tests.
var podKind = func() *wire.Kind {
	kind, _ := kube.KindOf(corev1.SchemeGroupVersion.WithResource("pods"))
	return kind
}()

// patient suits a server that sends no bookmarks.
var patient = reflector.Options{Silence: 48 * time.Hour, Timeout: 48 * time.Hour}

// server is a source of pods in memory. It streams its state, and never loses an event:
// the reflector's tests cover server failures.
type server struct {
	encoding wire.Encoding

	mu      sync.Mutex
	version uint64
	pods    map[string]*corev1.Pod
	streams map[*serverStream]struct{}
}

func newServer() *server {
	return &server{
		encoding: wire.Protobuf,
		version:  100,
		pods:     map[string]*corev1.Pod{},
		streams:  map[*serverStream]struct{}{},
	}
}

// put creates or updates a pod.
func (s *server) put(key string, edit func(*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	typ, p := delta.Updated, s.pods[key]
	if p == nil {
		namespace, name, _ := strings.Cut(key, "/")
		typ, p = delta.Added, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(strconv.FormatUint(s.version, 10)),
		}}
	}
	p = p.DeepCopy()
	if edit != nil {
		edit(p)
	}
	p.ResourceVersion = strconv.FormatUint(s.version, 10)
	s.pods[key] = p
	s.sendLocked(typ, p)
}

func (s *server) delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p := s.pods[key].DeepCopy()
	delete(s.pods, key)
	p.ResourceVersion = strconv.FormatUint(s.version, 10)
	s.sendLocked(delta.Deleted, p)
}

// state returns every pod's version.
func (s *server) state() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := map[string]string{}
	for key, p := range s.pods {
		state[key] = p.ResourceVersion
	}
	return state
}

func (s *server) sendLocked(typ delta.Type, p *corev1.Pod) {
	e := s.event(typ, p)
	for w := range s.streams {
		w.send(e)
	}
}

func (s *server) event(typ delta.Type, p *corev1.Pod) reflector.Event[*wire.Object] {
	o, err := wire.Encode(p, s.encoding, podKind)
	if err != nil {
		panic(err)
	}
	return reflector.Event[*wire.Object]{Type: typ, Object: o, Version: p.ResourceVersion}
}

func (s *server) List(
	_ context.Context, _ reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	s.mu.Lock()
	version, pods := s.version, slices.Collect(maps.Values(s.pods))
	s.mu.Unlock()
	for _, p := range pods {
		if err := each(s.event(delta.Added, p).Object); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: strconv.FormatUint(version, 10)}, nil
}

func (s *server) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	if !opts.InitialEvents {
		return nil, fmt.Errorf("these tests do not cut connections")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &serverStream{server: s, ready: make(chan struct{}, 1), end: ctx.Done()}
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		w.send(s.event(delta.Added, s.pods[key]))
	}
	w.send(reflector.Event[*wire.Object]{
		Type: delta.Bookmark, Version: strconv.FormatUint(s.version, 10), InitialEnd: true,
	})
	s.streams[w] = struct{}{}
	return w, nil
}

func (s *server) Served(context.Context) (bool, error) { return true, nil }

type serverStream struct {
	server *server
	mu     sync.Mutex
	events []reflector.Event[*wire.Object]
	ready  chan struct{}
	end    <-chan struct{}
}

func (w *serverStream) send(e reflector.Event[*wire.Object]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

func (w *serverStream) Next() (reflector.Event[*wire.Object], error) {
	for {
		w.mu.Lock()
		if len(w.events) > 0 {
			e := w.events[0]
			w.events[0] = reflector.Event[*wire.Object]{}
			w.events = w.events[1:]
			w.mu.Unlock()
			return e, nil
		}
		w.mu.Unlock()
		select {
		case <-w.ready:
		case <-w.end:
			return reflector.Event[*wire.Object]{}, io.ErrUnexpectedEOF
		}
	}
}

func (w *serverStream) Close() error {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.streams, w)
	return nil
}

// running runs an informer until the test ends or stop is called.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}
