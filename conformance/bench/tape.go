// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/watershed-project/watershed/internal/kubetest"
)

const (
	// firstVersion is high, so that no version is longer than another and one can be
	// written over another.
	firstVersion = 1_000_000_000
	// beat is how often a burst of changes is due.
	beat = time.Millisecond
)

// pace is how many changes are due at every beat.
type pace int

// due is when change k is to be sent, if the first is sent at start.
func (p pace) due(start time.Time, k int) time.Time {
	return start.Add(time.Duration(k/int(p)) * beat)
}

// in is how many changes are due in a time.
func (p pace) in(d time.Duration) int { return int(d/beat) * int(p) }

// tape is a watch of pods as an API server writes it: every pod once, a bookmark
// that says that this was the state, and then changes of random pods, each when it is
// due. It is written to a connection by another process than the reader's, as a
// server would do it.
type tape struct {
	frames   []tapeFrame
	bookmark []byte
}

// tapeFrame is a pod as an event. What is different each time it is sent has its
// place: version is where the resourceVersion is, note where the status has a number.
type tapeFrame struct {
	data          []byte
	version, note int
}

// What a frame has in those places before it is sent.
const versionMark, noteMark = "9999999999", "8888888888"

func newTape(n int) (*tape, error) {
	t := &tape{frames: make([]tapeFrame, n)}
	workload := kubetest.Workload{Seed: 1}
	for i := range t.frames {
		p := workload.Pod(i)
		p.ResourceVersion = versionMark
		for c := range p.Status.Conditions {
			if p.Status.Conditions[c].Type == corev1.PodReady {
				p.Status.Conditions[c].Message = "answer " + noteMark + " of the probe"
			}
		}
		data, err := encodeEvent(watch.Modified, p)
		if err != nil {
			return nil, err
		}
		f := tapeFrame{data: data, version: bytes.Index(data, []byte(versionMark)), note: bytes.Index(data, []byte(noteMark))}
		if f.version < 0 || f.note < 0 {
			return nil, fmt.Errorf("pod %d has no place for a version", i)
		}
		t.frames[i] = f
	}
	end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(firstVersion + n - 1),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	var err error
	t.bookmark, err = encodeEvent(watch.Bookmark, end)
	return t, err
}

// encodeEvent is an event as a frame of a watch in protobuf.
func encodeEvent(what watch.EventType, p *corev1.Pod) ([]byte, error) {
	var object bytes.Buffer
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(p, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(what), Object: runtime.RawExtension{Raw: object.Bytes()}}
	data, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// numbered is the frame with a version.
func (f *tapeFrame) numbered(version int) []byte {
	digits := strconv.AppendInt(nil, int64(version), 10)
	copy(f.data[f.version:], digits)
	copy(f.data[f.note:], digits)
	return f.data
}

// play writes the state to a reader, and then each number of changes when the reader
// says when to begin. It returns how much of a processor the last of them took.
func (t *tape) play(conn net.Conn, p pace, parts ...int) (float64, error) {
	version := firstVersion
	for i := range t.frames {
		if _, err := conn.Write(t.frames[i].numbered(version)); err != nil {
			return 0, err
		}
		version++
	}
	if _, err := conn.Write(t.bookmark); err != nil {
		return 0, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	var buf []byte
	var busy float64
	for _, changes := range parts {
		var word [8]byte
		if _, err := io.ReadFull(conn, word[:]); err != nil {
			return 0, fmt.Errorf("the reader does not begin: %w", err)
		}
		start, used := time.Unix(0, int64(binary.BigEndian.Uint64(word[:]))), cpuTime()
		for k := 0; k < changes; k += int(p) {
			sleepUntil(p.due(start, k))
			buf = buf[:0]
			for range p {
				buf = append(buf, t.frames[random.IntN(len(t.frames))].numbered(version)...)
				version++
			}
			if _, err := conn.Write(buf); err != nil {
				return 0, err
			}
		}
		busy = (cpuTime() - used).Seconds() / time.Since(start).Seconds()
	}
	return busy, nil
}

// sleepUntil is more exact than time.Sleep, which wakes up to a millisecond late, and
// as long as the beat.
func sleepUntil(t time.Time) {
	if wait := time.Until(t); wait > 0 {
		ts := syscall.NsecToTimespec(int64(wait))
		_ = syscall.Nanosleep(&ts, nil) // woken early is early, which harms nobody
	}
}
