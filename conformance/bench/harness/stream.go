// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package harness

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watershed-project/watershed/internal/kubetest"
)

// FirstVersion is the version of the first pod of a [Stream]. It is high, so that all
// versions have the same length and one can be written over another.
const FirstVersion = 1_000_000_000

// Placeholders in a frame, overwritten each time it is sent.
const (
	versionPlaceholder = "9999999999"
	statusPlaceholder  = "8888888888"
)

// Stream is a watch of pods as an API server writes it: every pod once, a bookmark
// that ends the initial state, and then changes of random pods, each when it is due.
// The process that writes it is not the one that reads it, as with a server. It holds
// one encoded frame per pod.
type Stream struct {
	frames   []streamFrame
	bookmark []byte
}

// streamFrame is a pod as an event.
type streamFrame struct {
	data []byte
	// version is the offset of the resourceVersion.
	version int
	// status is the offset of a number in the status, which changes with the version.
	status int
}

// NewStream returns a stream with the first n pods of the workload.
func NewStream(n int) (*Stream, error) {
	s := &Stream{frames: make([]streamFrame, n)}
	workload := kubetest.Workload{Seed: 1}
	for i := range s.frames {
		p := workload.Pod(i)
		p.ResourceVersion = versionPlaceholder
		for c := range p.Status.Conditions {
			if p.Status.Conditions[c].Type == corev1.PodReady {
				p.Status.Conditions[c].Message = "answer " + statusPlaceholder + " of the probe"
			}
		}
		data, err := EncodeEvent(watch.Modified, p)
		if err != nil {
			return nil, err
		}
		f := streamFrame{data: data, version: bytes.Index(data, []byte(versionPlaceholder)), status: bytes.Index(data, []byte(statusPlaceholder))}
		if f.version < 0 || f.status < 0 {
			return nil, fmt.Errorf("pod %d has no place for a version", i)
		}
		s.frames[i] = f
	}
	end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(FirstVersion + n - 1),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	var err error
	s.bookmark, err = EncodeEvent(watch.Bookmark, end)
	return s, err
}

// numbered returns the frame with a version. It is valid until the next call.
func (f *streamFrame) numbered(version int) []byte {
	digits := strconv.AppendInt(nil, int64(version), 10)
	copy(f.data[f.version:], digits)
	copy(f.data[f.status:], digits)
	return f.data
}

// Serve writes the stream to one connection after the other until the listener is
// closed. It returns the largest part of a processor that writing the last part took.
func (s *Stream) Serve(listener net.Listener, p Pace, parts ...int) float64 {
	var most float64
	for {
		conn, err := listener.Accept()
		if err != nil {
			return most
		}
		if busy, err := s.Write(conn, p, parts...); err != nil {
			fmt.Fprintf(os.Stderr, "the reader of the stream is gone: %v\n", err)
		} else {
			most = max(most, busy)
			_, _ = io.Copy(io.Discard, conn) // until the reader has received everything
		}
		_ = conn.Close()
	}
}

// Write writes the state, and then each part: so many changes, beginning at the time
// that the reader sends ([Recorder.Run]). It returns how much of a processor the last
// part took.
func (s *Stream) Write(conn net.Conn, p Pace, parts ...int) (float64, error) {
	version := FirstVersion
	for i := range s.frames {
		if _, err := conn.Write(s.frames[i].numbered(version)); err != nil {
			return 0, err
		}
		version++
	}
	if _, err := conn.Write(s.bookmark); err != nil {
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
		start, used := time.Unix(0, int64(binary.BigEndian.Uint64(word[:]))), CPUTime()
		for k := 0; k < changes; k += int(p) {
			sleepUntil(p.Due(start, k))
			buf = buf[:0]
			for range p {
				buf = append(buf, s.frames[random.IntN(len(s.frames))].numbered(version)...)
				version++
			}
			if _, err := conn.Write(buf); err != nil {
				return 0, err
			}
		}
		busy = (CPUTime() - used).Seconds() / time.Since(start).Seconds()
	}
	return busy, nil
}

// sleepUntil is more exact than time.Sleep, which wakes up to a millisecond late: as
// long as a PaceInterval.
func sleepUntil(t time.Time) {
	for wait := time.Until(t); wait > 0; wait = time.Until(t) {
		ts := syscall.NsecToTimespec(int64(wait))
		_ = syscall.Nanosleep(&ts, nil) // the runtime's signals interrupt it
	}
}
