// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/watershed-project/watershed/internal/expect"
)

func TestBare_repeatsTheOriginsResponse(t *testing.T) {
	var requests atomic.Int64
	origin := newServer(t, servePods(100, &requests))
	b, err := StartBare(t.Context(), origin, newServer(t, serveEvents(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, gzip := range []bool{false, true} {
		requests.Store(0)
		q := Query{
			Name: "list", Format: Format{Accept: JSON, Gzip: gzip}, Paths: []string{"/list?x"}, Clients: 2, Items: 100,
		}
		if _, err := q.Verify(t.Context(), &b.Server); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Run(t.Context(), &b.Server, 20*time.Millisecond, 0); err != nil {
			t.Fatal(err)
		}
		if requests.Load() != 1 {
			t.Errorf("the origin had %d requests", requests.Load())
		}
	}
}

// serveEvents serves a list with a pod, and watches whose events come from a channel.
func serveEvents(events <-chan []byte) http.HandlerFunc {
	var requests atomic.Int64
	list := servePods(1, &requests)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			list(w, r)
			return
		}
		for control := http.NewResponseController(w); ; {
			_ = control.Flush()
			select {
			case event := <-events:
				_, _ = w.Write(event)
			case <-r.Context().Done():
				return
			}
		}
	}
}

func TestBare_sendsTheEventsOfItsSource(t *testing.T) {
	events := make(chan []byte)
	source := newServer(t, serveEvents(events))
	b, err := StartBare(t.Context(), source, source)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	body, err := b.Get(t.Context(), newClient(t, &b.Server), "/?watch=true", Format{Accept: JSON})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	lines := bufio.NewReader(body)
	for _, event := range []string{"one\n", "two\n"} {
		events <- []byte(event)
		if got, err := lines.ReadString('\n'); err != nil || got != event {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestBare_endsWithTheWatchOfItsSource(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	events := serveEvents(nil)
	source := newServer(t, func(w http.ResponseWriter, r *http.Request) { events(w, r.WithContext(ctx)) })
	b, err := StartBare(t.Context(), source, source)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cancel()
	expect.Soon(t, "the end of the bare server", func() bool {
		body, err := b.Get(t.Context(), newClient(t, &b.Server), "/?watch=true", Format{Accept: JSON})
		if err == nil {
			_ = body.Close()
		}
		return err != nil
	})
}

// TestWatchers_countWhatABareServerSends joins three load generators: changes become events
// of the source of a bare server, and watchers receive them.
func TestWatchers_countWhatABareServerSends(t *testing.T) {
	events := make(chan []byte)
	source := newServer(t, serveEvents(events))
	b, err := StartBare(t.Context(), source, source)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	pods, err := newChangedPods(20, func(pod *corev1.Pod) ([]byte, error) {
		object, err := json.Marshal(pod)
		return append(append([]byte(`{"type":"MODIFIED","object":`), object...), "}\n"...), err
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := &Changes{pods: pods, writers: 1, write: func(_ context.Context, p *changedPod) error {
		events <- bytes.Clone(p.stamped())
		return nil
	}}
	const watchers = 6
	for _, streams := range []int{1, 3} {
		w, err := StartWatchers(t.Context(), WatchTask{
			At: b.Address(), Watchers: watchers, Selector: "app=%d", Streams: streams,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		if _, err := changes.Run(t.Context(), 5, 1000); err != nil { // not counted
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // the watchers receive these before they count
		if err := w.Count(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		rate, err := changes.Run(t.Context(), 50, 200)
		if err != nil || time.Since(began) < 240*time.Millisecond || rate > 210 {
			t.Errorf("%.0f changes per second, %v", rate, err)
		}
		if err := w.Wait(50 * watchers); err != nil {
			t.Fatal(err)
		}
		d, err := w.Report()
		if err != nil {
			t.Fatal(err)
		}
		if d.Events != 50*watchers || d.Ended != 0 || d.Bytes < 1000*d.Events || d.P50 <= 0 || d.P99 < d.P50 ||
			d.Max < d.P99 {
			t.Errorf("%+v", d)
		}
	}
}

func TestWatchers_continueAfterTheServerEndsTheirWatch(t *testing.T) {
	var watches atomic.Int64
	var versions [2]atomic.Pointer[string]
	var requests atomic.Int64
	list := servePods(1, &requests)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			list(w, r)
			return
		}
		version := r.URL.Query().Get("resourceVersion")
		switch n := watches.Add(1); n {
		case 1:
			versions[0].Store(&version)
			written := strings.Repeat("1", len(writtenPlaceholder)) // long ago, so it does not count
			_, _ = io.WriteString(w,
				`{"object":{"metadata":{"resourceVersion":"9","annotations":{"`+writtenKey+`":"`+written+"\"}}}}\n")
		case 2:
			versions[1].Store(&version)
			_, _ = io.WriteString(w, `{"type":"ERROR","object":{"code":410}}`+"\n")
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	w, err := StartWatchers(t.Context(), WatchTask{At: s.Address(), Watchers: 1, Streams: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	expect.Soon(t, "the third watch", func() bool { return watches.Load() >= 3 })
	d, err := w.Report()
	if err != nil || d.Ended != 2 || d.Events != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if *versions[0].Load() != "5" || *versions[1].Load() != "9" {
		t.Errorf("watches from %s and %s", *versions[0].Load(), *versions[1].Load())
	}
	if requests.Load() != 2 { // at the start and after 410
		t.Errorf("%d lists", requests.Load())
	}
}
