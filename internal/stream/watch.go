// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package stream

import (
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/internal/buffer"
	"github.com/watershed-project/watershed/internal/scan"
	"github.com/watershed-project/watershed/wire"
)

// maxVersion is the maximum length of the version of an event in bytes. The API server
// sends numbers.
const maxVersion = 256

var (
	errNoVersion   = errors.New("it has no resourceVersion")
	errLongVersion = fmt.Errorf("resourceVersion has more than %d bytes", maxVersion)
)

// EventType is the type of a watch event.
type EventType uint8

const (
	// Added is the type for an object that is new to the watch.
	Added EventType = iota + 1
	// Modified is the type for an object's new state.
	Modified
	// Deleted is the type for an object's last state.
	Deleted
	// Bookmark is the type for the version that the watch has reached.
	Bookmark
	// Error is the type for the API server's reason for ending the watch.
	Error
)

var eventTypes = [...]string{
	Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED", Bookmark: "BOOKMARK", Error: "ERROR",
}

// String returns the type as it is written in a watch.
func (t EventType) String() string {
	if t == 0 || int(t) >= len(eventTypes) {
		return "unknown event type"
	}
	return eventTypes[t]
}

func eventType(text []byte) (EventType, error) {
	for t := Added; t <= Error; t++ {
		if string(text) == eventTypes[t] {
			return t, nil
		}
	}
	return 0, fmt.Errorf("unknown event type %.100q", text)
}

// Event is one frame of a watch.
type Event struct {
	Type EventType
	// Object is the object that was added, modified or deleted.
	Object *wire.Object
	// Version is the resourceVersion of the object or of the bookmark.
	Version string
	// InitialEnd marks the bookmark behind the last initial event.
	InitialEnd bool
	// Status is the status that an Error carries.
	Status *metav1.Status
}

// WatchReader splits a watch into events as they arrive. It holds one event at a time. It
// is not safe for concurrent use.
type WatchReader struct {
	builder wire.Builder
	frames  frameReader
	err     error
}

// frameReader reads a watch in one of the encodings.
type frameReader interface {
	// Next returns the next frame, valid until the next call of a method. The error is
	// io.EOF, not wrapped, if the watch ended after a complete frame.
	Next() (frame, error)
	// Wait returns when Next has something to read, and keeps no buffer until then.
	Wait()
}

// NewWatchReader reads the response to a WATCH. All objects get the given kind. If it is
// nil, they have the type in their own bytes.
func NewWatchReader(r io.Reader, e wire.Encoding, kind *wire.Kind) *WatchReader {
	w := &WatchReader{builder: wire.Builder{Kind: kind}}
	switch e {
	case wire.JSON:
		w.frames = newJSONFrames(r)
	case wire.Protobuf:
		w.frames = &protoFrames{ahead: ahead{r: r}}
	default:
		w.err = fmt.Errorf("wire: read a watch: %v", e)
	}
	return w
}

// Wait waits until the first bytes of the next event have arrived, or the watch has ended.
// It takes less memory than Next: it keeps no buffers, and needs little stack. The result of
// a failed read is returned by Next.
func (w *WatchReader) Wait() {
	if w.err == nil {
		w.frames.Wait()
	}
}

// Next returns the next event. [io.EOF] means that the watch ended between two events. An
// [*wire.ObjectError] means that the event's object could not be filed; Next returns the event
// with it, as far as it could be read, and the watch continues. Any other error is final:
// [io.ErrUnexpectedEOF] if the watch was truncated within an event.
func (w *WatchReader) Next() (Event, error) {
	if w.err != nil {
		return Event{}, w.err
	}
	f, err := w.frames.Next()
	var ev Event
	if err == nil {
		ev, err = w.event(f)
	}
	if err == nil {
		return ev, nil
	}
	if failed := (*wire.ObjectError)(nil); errors.As(err, &failed) {
		return ev, failed
	}
	if err != io.EOF { //nolint:errorlint // only the bare one means that all went well
		err = fmt.Errorf("wire: read a watch: %w", scan.Bounded(err))
	}
	w.err = err
	return Event{}, err
}

func (w *WatchReader) event(f frame) (Event, error) {
	t, err := eventType(f.Type)
	if err != nil {
		return Event{}, err
	}
	ev := Event{Type: t}
	if t == Error {
		ev.Status, err = f.Status()
		return ev, err
	}
	id := scan.Header{Bookmark: t == Bookmark}
	switch {
	case f.Fault != nil:
		return ev, w.builder.Failed(&id, f.Fault)
	case t != Bookmark:
		ev.Object, err = w.file(f, &id)
	case f.JSON:
		err = id.ScanJSON(f.Object)
	default:
		err = id.ScanProtobuf(f.Object)
	}
	if len(id.Version) > maxVersion {
		return ev, w.builder.Failed(&id, errLongVersion)
	}
	ev.Version, ev.InitialEnd = string(id.Version), id.InitialEnd
	if t == Bookmark {
		if err == nil && ev.Version == "" {
			err = errNoVersion
		}
		if err != nil {
			err = w.builder.Failed(&id, err)
		}
	}
	return ev, err
}

// file makes an object from the bytes of a frame.
func (w *WatchReader) file(f frame, id *scan.Header) (*wire.Object, error) {
	if f.JSON {
		return w.builder.JSON(id, f.Object, nil)
	}
	kind, err := w.builder.KindOf(f.APIVersion, f.Kind)
	if err != nil {
		return nil, w.builder.Failed(id, err)
	}
	return w.builder.Protobuf(id, buffer.Copy(f.Object), kind)
}
