// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package diff_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/watershed-project/watershed/delta"
	"github.com/watershed-project/watershed/reflector"
	"github.com/watershed-project/watershed/wire"
)

// client-go logs every failure of the model server, and slows down after each.
func init() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	utilruntime.ErrorHandlers = nil
}

var (
	podKind = &wire.Kind{
		GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"),
		New:              func() runtime.Object { return &corev1.Pod{} },
	}
	podGroup = schema.GroupResource{Resource: "pods"}
)

func uidOf(n int) types.UID { return types.UID("uid-" + strconv.Itoa(n)) }

// fault is a possible outcome of a request.
type fault int

const (
	none fault = iota
	// broken is an error that neither side knows.
	broken
	gone
	tooLarge
	busy
	refused
	internal
	unsupported
	notServed
)

func (f fault) String() string {
	return [...]string{
		"none", "broken", "gone", "too large", "busy", "refused", "internal", "unsupported", "not served",
	}[f]
}

// theirs returns the fault as client-go receives it from a client.
func (f fault) theirs() error {
	switch f {
	case gone:
		return apierrors.NewResourceExpired("too old resource version")
	case tooLarge:
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		return err
	case busy:
		return apierrors.NewTooManyRequestsError("busy")
	case refused:
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	case internal:
		return apierrors.NewInternalError(errors.New("etcd is away"))
	case unsupported:
		return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
	case notServed:
		return apierrors.NewNotFound(podGroup, "")
	default:
		return errors.New("connection reset")
	}
}

// ours returns the fault as our source has to report it.
func (f fault) ours() error {
	reason, known := map[fault]reflector.Reason{
		gone: reflector.Expired, tooLarge: reflector.TooLarge, busy: reflector.Busy, refused: reflector.Refused,
		internal: reflector.Internal, unsupported: reflector.NotSupported, notServed: reflector.NotServed,
	}[f]
	if !known {
		return io.ErrUnexpectedEOF
	}
	return &reflector.Error{Reason: reason, Err: errors.New(f.String())}
}

// finish is how a stream ends.
type finish int

const (
	// clean is the server's timeout, and torn a lost connection. client-go cannot
	// distinguish them.
	clean finish = iota
	torn
	// The others are an error event.
	endGone
	endBusy
	endInternal
)

func (e finish) String() string {
	return [...]string{"clean", "torn", "gone", "busy", "internal"}[e]
}

func (e finish) fault() fault { return [...]fault{none, broken, gone, busy, internal}[e] }

// stream is an open watch of one side.
type stream struct {
	face *face
	// initial means that the initial events have not ended.
	initial bool
	over    chan struct{}
	once    sync.Once
	// The events in transit to one side or the other.
	theirs chan watch.Event
	ours   chan delivered
}

type delivered struct {
	event reflector.Event[*wire.Object]
	err   error
}

// onTheWay is more than any history sends at once.
const onTheWay = 512

func newStream(f *face) *stream {
	s := &stream{face: f, over: make(chan struct{})}
	if f.our {
		s.ours = make(chan delivered, onTheWay)
	} else {
		s.theirs = make(chan watch.Event, onTheWay)
	}
	return s
}

// sendLocked sends an event. It never blocks.
func (s *stream) sendLocked(e event) {
	if !s.initial {
		s.face.reachedLocked(e.version)
	}
	if s.face.our {
		s.deliverLocked(delivered{event: ourEvent(e, s.face.encoding)})
		return
	}
	s.deliverTheirsLocked(theirEvent(e))
}

func (s *stream) deliverLocked(d delivered) {
	select {
	case s.ours <- d:
	default:
		panic("the stream is full")
	}
}

func (s *stream) deliverTheirsLocked(e watch.Event) {
	select {
	case s.theirs <- e:
	default:
		panic("the stream is full")
	}
}

func (s *stream) endLocked(how finish) {
	s.face.stream = nil
	switch {
	case s.face.our && how == clean:
		s.deliverLocked(delivered{err: io.EOF})
	case s.face.our:
		s.deliverLocked(delivered{err: how.fault().ours()})
	case how == clean || how == torn:
		close(s.theirs)
	default:
		var status apierrors.APIStatus
		errors.As(how.fault().theirs(), &status)
		body := status.Status()
		s.deliverTheirsLocked(watch.Event{Type: watch.Error, Object: &body})
		close(s.theirs)
	}
}

// Stop is how client-go ends a stream, and Close how ours does.
func (s *stream) Stop() { s.once.Do(s.leave) }

func (s *stream) Close() error {
	s.Stop()
	return nil
}

func (s *stream) leave() {
	close(s.over)
	s.face.mu.Lock()
	defer s.face.mu.Unlock()
	if s.face.stream == s {
		s.face.stream = nil
	}
}

// ResultChan implements client-go's watch.
func (s *stream) ResultChan() <-chan watch.Event { return s.theirs }

// Next implements our watch.
func (s *stream) Next() (reflector.Event[*wire.Object], error) {
	select {
	case d := <-s.ours:
		return d.event, d.err
	case <-s.over:
		return reflector.Event[*wire.Object]{}, context.Canceled
	}
}

func theirEvent(e event) watch.Event {
	if e.typ != watch.Bookmark {
		return watch.Event{Type: e.typ, Object: e.pod.DeepCopy()}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(e.version)}}
	if e.end {
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: e.typ, Object: p}
}

func ourEvent(e event, encoding wire.Encoding) reflector.Event[*wire.Object] {
	if e.typ == watch.Bookmark {
		return reflector.Event[*wire.Object]{Type: delta.Bookmark, Version: strconv.Itoa(e.version), InitialEnd: e.end}
	}
	typ := map[watch.EventType]delta.Type{
		watch.Added: delta.Added, watch.Modified: delta.Updated, watch.Deleted: delta.Deleted,
	}[e.typ]
	return reflector.Event[*wire.Object]{Type: typ, Object: encode(e.pod, encoding), Version: e.pod.ResourceVersion}
}

func encode(p *corev1.Pod, encoding wire.Encoding) *wire.Object {
	o, err := wire.Encode(p, encoding, podKind)
	if err != nil {
		panic(err)
	}
	return o
}

// ourSource is the model as a source of ours.
type ourSource struct{ *face }

func (s ourSource) List(
	ctx context.Context, opts reflector.ListOptions, each func(*wire.Object) error,
) (reflector.Page, error) {
	p, fault := s.list(ctx, opts.Version, int(opts.Limit), opts.Continue)
	if fault != none {
		return reflector.Page{}, fault.ours()
	}
	for _, pod := range p.pods {
		if err := each(encode(pod, s.encoding)); err != nil {
			return reflector.Page{}, err
		}
	}
	return reflector.Page{Version: strconv.Itoa(p.version), Continue: p.next}, nil
}

func (s ourSource) Watch(ctx context.Context, opts reflector.WatchOptions) (reflector.Watch[*wire.Object], error) {
	stream, fault := s.watch(ctx, opts.Version, opts.InitialEvents)
	if fault != none {
		return nil, fault.ours()
	}
	context.AfterFunc(ctx, stream.Stop)
	return stream, nil
}

func (s ourSource) Served(context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.vanished, nil
}

// theirClient is the model as a ListerWatcher of client-go's.
type theirClient struct {
	cache.ListWatch
	// unable means that the client itself reports that it cannot stream lists.
	unable bool
}

func (c *theirClient) IsWatchListSemanticsUnSupported() bool { return c.unable }

func newTheirClient(f *face, unable bool) *theirClient {
	return &theirClient{unable: unable, ListWatch: cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			p, fault := f.list(ctx, opts.ResourceVersion, int(opts.Limit), opts.Continue)
			if fault != none {
				return nil, fault.theirs()
			}
			list := &corev1.PodList{
				ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(p.version), Continue: p.next},
			}
			for _, pod := range p.pods {
				list.Items = append(list.Items, *pod.DeepCopy())
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			stream, fault := f.watch(ctx, opts.ResourceVersion,
				opts.SendInitialEvents != nil && *opts.SendInitialEvents)
			if fault != none {
				return nil, fault.theirs()
			}
			return stream, nil
		},
	}}
}
