// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/kubetest/specimen"
	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/internal/wiretest"
	"github.com/watershed-project/watershed/wire"
)

// readWatch reads a watch to its end. failed holds the objects that could not be filed.
func readWatch(w *stream.WatchReader) (events []stream.Event, failed []*wire.ObjectError, err error) {
	for {
		ev, err := w.Next()
		one := (*wire.ObjectError)(nil)
		switch {
		case err == nil:
			events = append(events, ev)
		case errors.As(err, &one):
			failed = append(failed, one)
		default:
			return events, failed, err
		}
	}
}

func TestWatchReader_cutOffWithinAnEventIsAnError(t *testing.T) {
	for _, e := range wiretest.Encodings {
		var body []byte
		ends := []int{0}
		for n := range 3 {
			body = append(body, wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion,
				[]watch.Event{{Type: watch.Added, Object: wiretest.SmallPod(n)}})...)
			ends = append(ends, len(body))
		}
		for cut := range len(body) + 1 {
			events, failed, err := readWatch(stream.NewWatchReader(bytes.NewReader(body[:cut]), e, wiretest.PodKind))
			want, between := 0, false
			for n, end := range ends {
				// In JSON an event is complete before its newline.
				if end <= cut || e == wire.JSON && n > 0 && end-1 <= cut {
					want = n
				}
				between = between || end == cut || e == wire.JSON && n > 0 && end-1 == cut
			}
			if len(events) != want || len(failed) != 0 {
				t.Fatalf("%v cut at %d: %d events, want %d, and %v", e, cut, len(events), want, failed)
			}
			right := errors.Is(err, io.ErrUnexpectedEOF)
			if between {
				right = err == io.EOF //nolint:errorlint // must be bare
			}
			if !right {
				t.Fatalf("%v cut at %d: %v", e, cut, err)
			}
		}
	}
}

// chunks is a body whose parts arrive one by one.
type chunks struct {
	parts [][]byte
	reads int
}

func (c *chunks) Read(p []byte) (int, error) {
	c.reads++
	if len(c.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; len(c.parts[0]) == 0 {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func TestWatchReader_waitReadsOnlyIfNothingIsThere(t *testing.T) {
	for _, e := range wiretest.Encodings {
		var bodies [][]byte
		for n := range 4 {
			bodies = append(bodies, wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion,
				[]watch.Event{{Type: watch.Added, Object: wiretest.SmallPod(n)}}))
		}
		half := len(bodies[2]) / 2
		body := &chunks{
			parts: [][]byte{
				slices.Concat(bodies[0], bodies[1]), bodies[2][:half], slices.Concat(bodies[2][half:], bodies[3]),
			},
		}
		w := stream.NewWatchReader(body, e, wiretest.PodKind)
		for n := range 4 {
			before := body.reads
			w.Wait()
			if read, want := body.reads > before, n == 0 || n == 2; read != want {
				t.Errorf("%v: the wait for event %d reads: %t, want %t", e, n, read, want)
			}
			before = body.reads
			w.Wait()
			if body.reads > before {
				t.Errorf("%v: the second wait for event %d reads again", e, n)
			}
			if ev, err := w.Next(); err != nil || ev.Object.Name() != wiretest.SmallPod(n).Name {
				t.Fatalf("%v: event %d is %v, %v", e, n, ev, err)
			}
		}
		w.Wait()
		if _, err := w.Next(); err != io.EOF { //nolint:errorlint // must be bare
			t.Errorf("%v: the end is %v", e, err)
		}
		w.Wait()
	}
}

func TestWatchReader_errorCarriesTheStatus(t *testing.T) {
	want := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   "Failure", Message: "too old resource version: 5 (90)", Reason: metav1.StatusReasonExpired, Code: 410,
		Details: &metav1.StatusDetails{
			RetryAfterSeconds: 3,
			Causes:            []metav1.StatusCause{{Type: "ResourceVersionTooLarge"}},
		},
	}
	for _, e := range wiretest.Encodings {
		body := wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion, []watch.Event{{Type: watch.Error, Object: want}})
		events, _, err := readWatch(stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind))
		if err != io.EOF || len(events) != 1 { //nolint:errorlint // must be bare
			t.Fatal(events, err)
		}
		if diff := cmp.Diff(stream.Event{Type: stream.Error, Status: want}, events[0]); diff != "" {
			t.Errorf("%v: %s", e, diff)
		}
		body = wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion,
			[]watch.Event{{Type: watch.Error, Object: wiretest.NewPod(1)}})
		events, failed, err := readWatch(stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind))
		if len(events)+len(failed) != 0 || err == io.EOF { //nolint:errorlint // must be bare
			t.Errorf("an error with a pod in it is %v, %v, %v", events, failed, err)
		}
	}
}

func TestWatchReader_oneBadObjectIsNotTheEnd(t *testing.T) {
	for _, e := range wiretest.Encodings {
		body := wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion, []watch.Event{
			{Type: watch.Added, Object: wiretest.NewPod(1)},
			{
				Type:   watch.Modified,
				Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", ResourceVersion: "8"}},
			},
			{Type: watch.Bookmark, Object: &corev1.Pod{}},
			{Type: watch.Deleted, Object: wiretest.NewPod(2)},
		})
		w := stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind)
		if _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
		failed := (*wire.ObjectError)(nil)
		if ev, err := w.Next(); !errors.As(err, &failed) || ev.Type != stream.Modified || ev.Version != "8" {
			t.Errorf("%v: %v, %v", e, ev, err)
		}
		if ev, err := w.Next(); !errors.As(err, &failed) || ev.Type != stream.Bookmark {
			t.Errorf("%v: %v, %v", e, ev, err)
		}
		if ev, err := w.Next(); err != nil || ev.Type != stream.Deleted {
			t.Errorf("%v: %v, %v", e, ev, err)
		}
	}
	// Protobuf whose envelope cannot be opened.
	frame := (&metav1.WatchEvent{Type: "ADDED"})
	frame.Object.Raw = []byte("what is this")
	message, err := frame.Marshal()
	wiretest.Must(t, err)
	body := append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	_, failed, err := readWatch(stream.NewWatchReader(bytes.NewReader(body), wire.Protobuf, wiretest.PodKind))
	if len(failed) != 1 || err != io.EOF { //nolint:errorlint // must be bare
		t.Errorf("%v, %v", failed, err)
	}
}

func TestWatchReader_refusesWhatIsNoWatch(t *testing.T) {
	for name, c := range map[string]struct {
		e    wire.Encoding
		body string
	}{
		"list":         {wire.JSON, string(wiretest.PodList(t, wire.JSON, 1))},
		"pod":          {wire.JSON, string(wiretest.PodBytes(t, wire.JSON, 1))},
		"unknown type": {wire.JSON, `{"type":"CHANGED","object":{"metadata":{"name":"x"}}}`},
		"no type":      {wire.JSON, `{"object":{"metadata":{"name":"x"}}}`},
		"bad type":     {wire.JSON, `{"type":7,"object":{}}`},
		"array":        {wire.JSON, `[]`},
		"no JSON":      {wire.JSON, `{"type":"ADDED",}`},
		"bad status":   {wire.JSON, `{"type":"ERROR","object":[]}`},
		"no status":    {wire.JSON, `{"type":"ERROR"}`},
		"no frames":    {wire.Protobuf, string(wiretest.PodList(t, wire.Protobuf, 1))},
		"empty frame":  {wire.Protobuf, "\x00\x00\x00\x00"},
		"too large":    {wire.Protobuf, "\x7f\xff\xff\xff"},
		"neither":      {7, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			events, failed, err := readWatch(stream.NewWatchReader(strings.NewReader(c.body), c.e, wiretest.PodKind))
			if len(events)+len(failed) != 0 || err == io.EOF { //nolint:errorlint // must be bare
				t.Errorf("%v, %v, %v", events, failed, err)
			}
		})
	}
}

// TestWatchReader_letsGoOfLargeBuffers reads large and small events in turn, so that
// buffers are replaced.
func TestWatchReader_letsGoOfLargeBuffers(t *testing.T) {
	large := wiretest.NewPod(1)
	large.Annotations["large"] = strings.Repeat("x", 1<<20)
	var events []watch.Event
	for n := range 20 {
		events = append(events, watch.Event{Type: watch.Added, Object: wiretest.NewPod(n)})
		if n%3 == 0 {
			events = append(events, watch.Event{Type: watch.Modified, Object: large})
		}
	}
	events = append(events, watch.Event{Type: watch.Bookmark, Object: wiretest.NewPod(5)},
		watch.Event{Type: watch.Added, Object: wiretest.NewPod(6)})
	for _, e := range wiretest.Encodings {
		body := wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion, events)
		before := wiretest.Heap()
		w := stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind)
		for _, want := range events {
			ev, err := w.Next()
			wiretest.Must(t, err)
			wiretest.WantEqual(t, "Type", ev.Type.String(), string(want.Type))
			wiretest.WantEqual(t, "Version", ev.Version, want.Object.(*corev1.Pod).ResourceVersion)
			if ev.Object != nil && !bytes.Equal(ev.Object.Bytes(),
				wiretest.Bare(t, e, wiretest.Encode(t, e, corev1.SchemeGroupVersion, want.Object))) {
				t.Errorf("%v: bytes of %v differ", e, ev.Object)
			}
		}
		if after := wiretest.Heap(); after > before+200<<10 {
			t.Errorf("%v: an idle watch holds %d bytes", e, after-before)
		}
		if _, err := w.Next(); err != io.EOF { //nolint:errorlint // must be bare
			t.Error(err)
		}
	}
}

// TestWatchReader_sameBytesAsList checks the property by which a relist recognizes
// objects that it has already.
func TestWatchReader_sameBytesAsList(t *testing.T) {
	for _, e := range wiretest.Encodings {
		listed, _, _ := readList(stream.NewListReader(bytes.NewReader(wiretest.PodList(t, e, 2)), e, wiretest.PodKind))
		watched, _, _ := readWatch(stream.NewWatchReader(bytes.NewReader(wiretest.EncodeWatch(t, e,
			corev1.SchemeGroupVersion,
			[]watch.Event{
				{Type: watch.Added, Object: wiretest.NewPod(0)},
				{Type: watch.Added, Object: wiretest.NewPod(1)},
			})), e, nil))
		if len(listed) != 2 || len(watched) != 2 {
			t.Fatal(listed, watched)
		}
		for n := range listed {
			if !wire.Same(listed[n], watched[n].Object) {
				t.Errorf("%v: listed\n%q\nand watched\n%q", e, listed[n].Bytes(), watched[n].Object.Bytes())
			}
		}
	}
}

// TestReaders_surviveCorruption changes bytes at random: reading must end without a
// panic.
func TestReaders_surviveCorruption(t *testing.T) {
	r := specimen.Rand(t)
	rounds := 2000
	if wiretest.Race {
		rounds = 200
	}
	for _, e := range wiretest.Encodings {
		list := wiretest.PodList(t, e, 3)
		events := wiretest.EncodeWatch(t, e, corev1.SchemeGroupVersion, []watch.Event{
			{Type: watch.Added, Object: wiretest.NewPod(1)}, {Type: watch.Bookmark, Object: wiretest.NewPod(1)},
			{Type: watch.Error, Object: &metav1.Status{}},
		})
		for range rounds {
			for _, whole := range [][]byte{list, events} {
				body := slices.Clone(whole)
				for range 1 + r.Intn(3) {
					switch at := r.Intn(len(body)); r.Intn(3) {
					case 0:
						body[at] = byte(r.Int())
					case 1:
						body = slices.Delete(body, at, min(len(body), at+1+r.Intn(20)))
					default:
						body = slices.Insert(body, at, body[r.Intn(at+1):at]...)
					}
				}
				objects, _, err := readList(stream.NewListReader(bytes.NewReader(body), e, nil))
				if err == nil {
					t.Fatal("no end")
				}
				for _, o := range objects {
					wiretest.UseObject(o)
				}
				got, _, err := readWatch(stream.NewWatchReader(bytes.NewReader(body), e, wiretest.PodKind))
				if err == nil {
					t.Fatal("no end")
				}
				for _, ev := range got {
					if ev.Object != nil {
						wiretest.UseObject(ev.Object)
					}
				}
			}
		}
	}
}
