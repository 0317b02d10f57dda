// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/wire"
)

func TestEvent_isReadByBothSides(t *testing.T) {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.ResourceVersion = "shop", "cart", "7"
	frame, err := EncodeEvent(watch.Modified, p)
	if err != nil {
		t.Fatal(err)
	}
	kind, _ := kube.KindOf(Pods)
	ours, err := stream.NewWatchReader(bytes.NewReader(frame), wire.Protobuf, kind).Next()
	if err != nil || ours.Object.Name() != "cart" || ours.Version != "7" {
		t.Errorf("%+v, %v", ours, err)
	}
	w := DecodeWatch(io.NopCloser(bytes.NewReader(frame)))
	defer w.Stop()
	theirs := <-w.ResultChan()
	if got, ok := theirs.Object.(*corev1.Pod); theirs.Type != watch.Modified || !ok || got.Name != "cart" ||
		got.ResourceVersion != "7" {
		t.Errorf("%+v", theirs)
	}
}

// TestStream_isRecorded reads the state and two parts of changes. The reader skips one
// change of the second part.
func TestStream_isRecorded(t *testing.T) {
	const (
		pods    = 20
		changes = 40
		skipped = 7
	)
	s, err := NewStream(pods)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan float64)
	go func() { served <- s.Serve(l, Pace(4), changes, changes) }()
	conn, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	first := NewRecorder(FirstVersion+pods, changes, Pace(4))
	second := NewRecorder(first.Next(), changes, Pace(4))
	synced := make(chan int)
	go func() {
		kind, _ := kube.KindOf(Pods)
		frames := stream.NewWatchReader(conn, wire.Protobuf, kind)
		state := 0
		for {
			e, err := frames.Next()
			switch {
			case err != nil:
				return
			case e.Type == stream.Bookmark:
				if !e.InitialEnd || e.Version != strconv.Itoa(FirstVersion+pods-1) {
					state = -1
				}
				synced <- state
				continue
			}
			switch v := e.Object.Version(); {
			case int(v) < FirstVersion+pods:
				state++
			case int(v) < first.Next():
				first.Received(v)
			case int(v) != first.Next()+skipped:
				second.Received(v)
			}
		}
	}()
	if n := <-synced; n != pods {
		t.Fatalf("%d pods before the bookmark", n)
	}
	began := time.Now()
	if n, err := first.Run(conn); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if d := time.Since(began); d < Pace(4).Due(began, changes-1).Sub(began) {
		t.Errorf("all changes within %v", d)
	}
	if n, err := second.Run(conn); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	for k, d := range second.Latencies() {
		// A change that was skipped counts as received after the last.
		if d <= 0 || d > 10*time.Second || k == skipped && d < recorderQuiet {
			t.Errorf("change %d took %v", k, d)
		}
	}
	_ = conn.Close()
	_ = l.Close()
	if busy := <-served; busy < 0 || busy > 2 {
		t.Errorf("writing took %v processors", busy)
	}
}

func TestRecorder_failsIfTheSenderIsGone(t *testing.T) {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	if _, err := NewRecorder(1, 1, Pace(1)).Run(ours); err == nil {
		t.Error("no error")
	}
}
