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
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

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
		f := streamFrame{
			data:    data,
			version: bytes.Index(data, []byte(versionPlaceholder)),
			status:  bytes.Index(data, []byte(statusPlaceholder)),
		}
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
		start := time.Unix(0, int64(binary.BigEndian.Uint64(word[:])))
		used := CPUTime()
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

const (
	// recorderGrace is how long after its due time the last change may arrive.
	recorderGrace = time.Minute
	// recorderLead is how long before the first change is due the sender learns of it.
	recorderLead = 50 * time.Millisecond
	// recorderQuiet is how long no change may have arrived for [Recorder.Run] to return.
	recorderQuiet = 100 * time.Millisecond
)

// Recorder records the latencies of the changes that a reader receives from a
// [Stream]. It holds 8 bytes per change, allocated before the first.
type Recorder struct {
	// first is the version of the first change, which is due at start.
	first     int
	pace      Pace
	start     atomic.Pointer[time.Time]
	received  atomic.Int64
	latencies Latencies
	// last is closed when the last change has been received.
	last chan struct{}
}

// NewRecorder returns a recorder of n changes that begin with version first.
func NewRecorder(first, n int, p Pace) *Recorder {
	return &Recorder{first: first, pace: p, latencies: make(Latencies, n), last: make(chan struct{})}
}

// Run lets the sender at the other end of conn start, and waits until the last change
// has been received. A reader that falls far behind skips some changes: they count as
// received when all are. Run returns how many were skipped.
func (r *Recorder) Run(conn io.Writer) (skipped int, err error) {
	start := time.Now().Add(recorderLead)
	r.start.Store(&start)
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(start.UnixNano()))); err != nil {
		return 0, err
	}
	select {
	case <-r.last:
	case <-time.After(time.Until(r.pace.Due(start, len(r.latencies))) + recorderGrace):
		return 0, fmt.Errorf("did not keep up: received %d of %d changes %v after the last was due", r.received.Load(),
			len(r.latencies), recorderGrace)
	}
	for n := r.received.Load(); ; n = r.received.Load() {
		time.Sleep(recorderQuiet)
		if r.received.Load() == n {
			break
		}
	}
	for k := range r.latencies {
		if r.latencies[k] == 0 {
			r.latencies[k] = time.Since(r.pace.Due(start, k))
			skipped++
		}
	}
	return skipped, nil
}

// Received records a change. Its latency begins when the change was due, not when it
// was sent: a reader that delays the sender is charged for that. One goroutine calls
// Received.
func (r *Recorder) Received(version uint64) {
	k := int(version) - r.first
	r.latencies[k] = time.Since(r.pace.Due(*r.start.Load(), k))
	r.received.Add(1)
	if k == len(r.latencies)-1 {
		close(r.last)
	}
}

// Next returns the version after the last change that r records.
func (r *Recorder) Next() int { return r.first + len(r.latencies) }

// Latencies returns the latency of every change, in order, after [Recorder.Run].
func (r *Recorder) Latencies() Latencies { return r.latencies }

// PaceInterval is how often a burst of changes is due.
const PaceInterval = time.Millisecond

// Pace is how many changes are due in every [PaceInterval].
type Pace int

// Due returns when change k is due, if the first is due at start.
func (p Pace) Due(start time.Time, k int) time.Time {
	return start.Add(time.Duration(k/int(p)) * PaceInterval)
}

// Count returns how many changes are due in a time.
func (p Pace) Count(d time.Duration) int { return int(d/PaceInterval) * int(p) }

// EncodeEvent returns an event of a pod as [EncodeObjectEvent] does. It sets the kind of
// the pod.
func EncodeEvent(kind watch.EventType, p *corev1.Pod) ([]byte, error) {
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return EncodeObjectEvent(kind, p)
}

// EncodeObjectEvent returns an event as a frame of a watch in protobuf, with its length in
// front, as an API server writes it. The object must have its kind.
func EncodeObjectEvent(kind watch.EventType, o runtime.Object) ([]byte, error) {
	var object bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &object); err != nil {
		return nil, err
	}
	event := metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object.Bytes()}}
	data, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...), nil
}

// DecodeWatch decodes the frames of a watch in protobuf with the decoders that
// client-go's REST client uses.
func DecodeWatch(body io.ReadCloser) watch.Interface {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	frames := info.StreamSerializer.NewFrameReader(body)
	objects := scheme.Codecs.WithoutConversion().DecoderToVersion(info.Serializer, nil)
	return watch.NewStreamWatcher(
		restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), objects), nil,
	)
}
