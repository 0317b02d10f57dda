// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet_test

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/internal/expect"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

var widgetResource = schema.GroupResource{Group: "x.example.com", Resource: "widgets"}

// hostile is an API server with one custom resource. A test sets the functions that
// respond in its own way.
type hostile struct {
	discovery, list, watch func(w *out, r *http.Request)
	// written counts the bytes of watches.
	written atomic.Int64
}

// out writes a response until the client is gone.
type out struct {
	*bufio.Writer
	r    *http.Request
	to   http.ResponseWriter
	gone bool
}

// send writes everything to the connection. It is for watches, which are not compressed.
func (o *out) send() {
	_ = o.Flush()
	_ = http.NewResponseController(o.to).Flush()
}

// print writes text, and reports whether the client is still there.
func (o *out) print(format string, args ...any) bool {
	if _, err := fmt.Fprintf(o, format, args...); err != nil || o.r.Context().Err() != nil {
		o.gone = true
	}
	return !o.gone
}

// repeat writes a text until the client is gone, at most a number of bytes.
func (o *out) repeat(text string, bytes int) {
	for n := 0; n < bytes && o.print("%s", text); n += len(text) {
		continue
	}
}

// widgets is the part of discovery for one resource.
func widgets(name string) string {
	return fmt.Sprintf(
		`{"resource":%q,"responseKind":{"group":"x.example.com","version":"v1","kind":"Widget"},"scope":"Namespaced","singularResource":"","verbs":["get","list","watch"]}`, name,
	)
}

// groups writes an aggregated discovery document.
func groups(o *out, resources func()) {
	o.print(
		`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"x.example.com"},"versions":[{"version":"v1","freshness":"Current","resources":[`,
	)
	resources()
	o.print(`]}]}]}`)
}

// widget is an object.
func widget(name string, version int, data string) string {
	return fmt.Sprintf(
		`{"apiVersion":"x.example.com/v1","kind":"Widget","metadata":{"namespace":"n","name":%q,"resourceVersion":"%d"},"data":%q}`, name, version, data,
	)
}

const listHead = `{"apiVersion":"x.example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"5"},"items":[`

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer func(*out, *http.Request)
	head := "application/json"
	switch {
	case r.URL.Path == "/apis":
		head = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
		answer = h.discovery
		if answer == nil {
			answer = func(o *out, _ *http.Request) { groups(o, func() { o.print("%s", widgets("widgets")) }) }
		}
	case strings.HasPrefix(r.URL.Path, "/apis/x.example.com/v1/") && r.URL.Query().Get("watch") != "":
		answer = h.watch
		if answer == nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
	case strings.HasPrefix(r.URL.Path, "/apis/x.example.com/v1/"):
		answer = h.list
	}
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", head)
	var body io.Writer = countingWriter{w, &h.written}
	if r.Header.Get("Accept-Encoding") == "gzip" && r.URL.Query().Get("watch") == "" {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(body, gzip.BestSpeed)
		defer z.Close()
		body = z
	}
	o := &out{Writer: bufio.NewWriterSize(body, 32<<10), r: r, to: w}
	defer o.Flush()
	answer(o, r)
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c countingWriter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// noise is text that does not compress well.
func noise(n, seed int) string {
	b := make([]byte, n)
	x := uint64(seed)*2654435761 + 88172645463325252
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[x%64]
	}
	return string(b)
}

// endless writes items of a list for ever.
func endless(item func(n int) string) func(*out, *http.Request) {
	return func(o *out, r *http.Request) {
		o.print(listHead)
		if r.URL.Query().Get("limit") == "1" { // the number of objects is requested
			o.print("]}")
			return
		}
		for n := 1; o.print("%s,", item(n)); n++ {
			continue
		}
	}
}

func TestHostile_lists(t *testing.T) {
	for _, c := range []struct {
		name      string
		limits    fleet.Limits
		server    *hostile
		text      string
		megabytes int64
	}{
		{"endless", fleet.Limits{Objects: 20_000}, &hostile{
			list: endless(func(n int) string { return widget(fmt.Sprint("w", n), n, "") }),
		},
			"one resource may have 15000 objects", 64},
		{"endless with the same object", fleet.Limits{Objects: 5000}, &hostile{
			list: endless(func(int) string { return widget("w", 1, "") }),
		},
			"and does not end", 64},
		{"large objects", fleet.Limits{Bytes: 32 << 20}, &hostile{
			list: endless(func(n int) string { return widget(fmt.Sprint("w", n), n, noise(20<<10, n)) }),
		},
			"objects of 25165824 bytes", 150},
		{"kinds", fleet.Limits{Objects: 20_000}, &hostile{list: endless(func(n int) string {
			return strings.Replace(widget(fmt.Sprint("w", n), n, noise(300, n)), "Widget", fmt.Sprint("Widget", n), 1)
		})}, "is of kind", 64},
		{"names", fleet.Limits{}, &hostile{
			list: endless(func(n int) string { return widget(strings.Repeat("w", 2<<10), n, "") }),
		},
			"too many objects", 64},
		{"gzip bomb", fleet.Limits{}, &hostile{list: func(o *out, _ *http.Request) {
			o.print(listHead + `{"apiVersion":"x.example.com/v1","kind":"`)
			o.repeat(strings.Repeat("a", 64<<10), 1<<30)
		}}, "larger than 32 MiB", 320},
		{"gzip bomb without objects", fleet.Limits{}, &hostile{list: func(o *out, _ *http.Request) {
			o.print(`{"kind":"`)
			o.repeat(strings.Repeat("a", 64<<10), 1<<30)
		}}, "larger than 32 MiB", 320},
		{"pages", fleet.Limits{}, &hostile{list: func(o *out, _ *http.Request) {
			o.print(
				`{"apiVersion":"x.example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"5","continue":"again"},"items":[]}`,
			)
		}}, "pages in a row have no objects", 64},
		{"continue token", fleet.Limits{}, &hostile{list: func(o *out, _ *http.Request) {
			o.print(
				`{"apiVersion":"x.example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"5","continue":%q},"items":[]}`, strings.Repeat("a", 8<<20),
			)
		}}, "token", 150},
		{"initial events", fleet.Limits{Objects: 20_000}, &hostile{
			list: func(o *out, _ *http.Request) { o.print(listHead + "]}") },
			watch: func(o *out, _ *http.Request) {
				for n := 1; o.print(`{"type":"ADDED","object":%s}`, widget(fmt.Sprint("w", n), n, "")); n++ {
					continue
				}
			},
		}, "one resource may have 15000 objects", 64},
		{"error event", fleet.Limits{}, &hostile{
			list: func(o *out, _ *http.Request) { o.print(listHead + "]}") },
			watch: func(o *out, _ *http.Request) {
				o.print(
					`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"because %s"}}`, strings.Repeat("a", 20<<20),
				)
			},
		}, "because", 200},
		{"event type", fleet.Limits{}, &hostile{
			list:  func(o *out, _ *http.Request) { o.print(listHead + "]}") },
			watch: func(o *out, _ *http.Request) { o.print(`{"type":%q,"object":{}}`, strings.Repeat("a", 20<<20)) },
		}, "unknown event type", 200},
		{"headers", fleet.Limits{}, &hostile{list: func(o *out, _ *http.Request) {
			o.to.Header().Set("Audit-Id", strings.Repeat("a", 512<<10))
			o.print(listHead + "]}")
		}}, "the headers of the response", 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && slices.Contains([]string{
				"large objects", "gzip bomb", "gzip bomb without objects",
			}, c.name) {
				t.Skip("it compresses or decompresses hundreds of megabytes")
			}
			a := newAttack(t, c.server, fleet.Options{Limits: c.limits})
			s := a.refused(c.text, c.megabytes)
			if limit := c.limits.Objects; limit > 0 && s.Objects > limit+limit/16 {
				t.Errorf("%d objects are kept, and the limit is %d", s.Objects, limit)
			}
			if strings.Contains(c.text, "may have") && s.State != fleet.Stale {
				t.Errorf("the cluster is %s", s)
			}
		})
	}
}

func TestHostile_discovery(t *testing.T) {
	for _, c := range []struct {
		name      string
		discovery func(*out, *http.Request)
		text      string
		mirrors   int
	}{
		{"100,000 resources", func(o *out, _ *http.Request) {
			groups(o, func() {
				for n := range 75_000 {
					o.print("%s,", widgets(fmt.Sprint("w", n)))
				}
				o.print("%s", widgets("last"))
			})
		}, "the cluster serves", 20},
		{"resources to mirror", func(o *out, _ *http.Request) {
			groups(o, func() {
				for n := range 100 {
					o.print("%s,", widgets(fmt.Sprint("w", n)))
				}
				o.print("%s", widgets("last"))
			})
		}, "101 resources to mirror, and 20 are mirrored", 20},
		{"gzip bomb", func(o *out, _ *http.Request) {
			o.print(`{"kind":"`)
			o.repeat(strings.Repeat("a", 64<<10), 1<<30)
		}, "longer than", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &hostile{discovery: c.discovery, list: func(o *out, _ *http.Request) { o.print(listHead + "]}") }}
			a := newAttack(t, h, fleet.Options{Limits: fleet.Limits{Resources: 20}})
			s := a.refused(c.text, 200)
			if s.Resources != c.mirrors {
				t.Errorf("%d mirrors, want %d", s.Resources, c.mirrors)
			}
			if limited := errors.Is(s.Err, fleet.ErrLimit); limited != (c.mirrors > 0) {
				t.Errorf("the error is %v", s.Err)
			}
		})
	}
}

// TestHostile_watchFlood checks that a cluster whose watch sends without a pause is read at
// the rate that its limit allows.
func TestHostile_watchFlood(t *testing.T) {
	h := &hostile{
		list: func(o *out, _ *http.Request) { o.print("%s", listHead+widget("w", 1, "")+"]}") },
	}
	h.watch = func(o *out, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			o.print(
				`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}}`,
			)
			return
		}
		data := noise(10<<10, 1)
		for n := 6; o.print(`{"type":"MODIFIED","object":%s}`, widget("w", n, data)); n++ {
			continue
		}
	}
	const rate = 1 << 20
	a := newAttack(t, h, fleet.Options{
		Limits: fleet.Limits{WatchBytes: rate}, Reflector: listOnly, Window: 1 << 20, History: 8 << 20,
	})
	version := func() uint64 {
		for _, o := range fleet.OfResource[*wire.Object](a.f, widgetResource).All() {
			return o.Version()
		}
		return 0
	}
	const events = 300
	expect.Eventually(t, time.Minute, func() error {
		if n := version(); n < events {
			return fmt.Errorf("%d of %d events", n, events)
		}
		return nil
	})
	took := time.Since(time.Unix(0, a.joined.Load()))
	t.Logf("%d events of 10 KB in %v", events, took)
	// A second is the burst that the limit allows. There is no bound above, for a busy machine.
	if least := time.Duration(events * 10 << 10 * float64(time.Second) / rate); took < least-1300*time.Millisecond {
		t.Errorf("%d events of 10 KB arrived in %v: that is faster than %d bytes a second", events, took, rate)
	}
	if s := a.bad.Status(); s.State != fleet.Live {
		t.Errorf("the cluster is %s", s)
	}
	a.healthy(100)
}

// TestHostile_keepsItsLastState checks that a resource which exceeds a limit after it has
// synced stays readable, and recovers when it has become smaller.
func TestHostile_keepsItsLastState(t *testing.T) {
	var small, flooded atomic.Bool
	smaller := make(chan struct{})
	h := &hostile{}
	h.list = func(o *out, r *http.Request) {
		n, version := 100, 5000
		if flooded.Load() { // it is tried again
			select {
			case <-smaller:
			case <-r.Context().Done():
			}
		}
		if small.Load() {
			n, version = 10, 100_000
		}
		o.print(`{"apiVersion":"x.example.com/v1","kind":"WidgetList","metadata":{"resourceVersion":"%d"},"items":[`,
			version)
		for i := range n - 1 {
			o.print("%s,", widget(fmt.Sprintf("w%03d", i), 1, ""))
		}
		o.print("%s]}", widget("x", 1, ""))
	}
	h.watch = func(o *out, r *http.Request) {
		if small.Load() && r.URL.Query().Get("resourceVersion") != "100000" {
			o.print(
				`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`,
			)
			return
		}
		if small.Load() {
			o.print(
				`{"type":"BOOKMARK","object":{"apiVersion":"x.example.com/v1","kind":"Widget","metadata":{"resourceVersion":"100001"}}}`,
			)
			o.send()
			<-r.Context().Done()
			return
		}
		flooded.Store(true)
		for n := 5001; o.print(`{"type":"ADDED","object":%s}`, widget(fmt.Sprint("new", n), n, "")); n++ {
			continue
		}
	}
	a := newAttack(t, h, fleet.Options{
		Limits:    fleet.Limits{Objects: 4000, Retry: 200 * time.Millisecond},
		Reflector: reflector.Options{ListOnly: true, MaxBackoff: 100 * time.Millisecond},
	})
	s := a.refused("one resource may have 3000 objects", 64)
	if s.State != fleet.Stale || len(s.Failing) != 1 || !errors.Is(s.Failing[0].Reflector.Err, fleet.ErrLimit) {
		t.Errorf("the cluster is %s", s)
	}
	view := fleet.OfResource[*wire.Object](a.f, widgetResource)
	// Objects that are being stored when the limit is checked count twice, at most 512.
	if n := view.Len(); n < 3000-512 || n > 3400 {
		t.Errorf("%d objects can be read", n)
	}
	small.Store(true)
	close(smaller)
	expect.Eventually(t, time.Minute, func() error {
		if s, n := a.bad.Status(), view.Len(); s.State != fleet.Live || n != 10 {
			return fmt.Errorf("%d objects, %s", n, s)
		}
		return nil
	})
}
