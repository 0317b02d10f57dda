// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica_test

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// event is an event of a watch.
type event struct {
	kind   string
	object any
	at     time.Time
}

// initialEnd reports whether the event ends the initial events.
func (e event) initialEnd() bool {
	return e.kind == string(watch.Bookmark) &&
		text(e.metadata(), "annotations", metav1.InitialEventsAnnotationKey) == "true"
}

// metadata returns the metadata of the object, or of a table's row.
func (e event) metadata() any {
	if rows, ok := at(e.object, "rows").([]any); ok && len(rows) == 1 {
		return at(rows[0], "object", "metadata")
	}
	return at(e.object, "metadata")
}

// name returns the name of the object, for reports.
func (e event) name() string {
	m := e.metadata()
	return fmt.Sprintf("%s %s/%s@%s", e.kind, text(m, "namespace"), text(m, "name"), text(m, "resourceVersion"))
}

// readEvents reads a watch until it ends.
func readEvents(resp *http.Response, tell func(event)) error {
	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return err
		}
		body = z
	}
	switch media := mediaType(resp.Header); media {
	case runtime.ContentTypeJSON:
		return readJSONEvents(body, tell)
	case runtime.ContentTypeProtobuf:
		return readProtobufEvents(body, tell)
	default:
		return fmt.Errorf("a watch in %s", media)
	}
}

func readJSONEvents(body io.Reader, tell func(event)) error {
	d := json.NewDecoder(body)
	d.UseNumber()
	for {
		var frame struct {
			Type   string `json:"type"`
			Object any    `json:"object"`
		}
		if err := d.Decode(&frame); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a frame of a watch: %w", err)
		}
		tell(event{kind: frame.Type, object: frame.Object, at: time.Now()})
	}
}

func readProtobufEvents(body io.Reader, tell func(event)) error {
	for {
		var size [4]byte
		if _, err := io.ReadFull(body, size[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a frame of a watch: %w", err)
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxBody {
			return fmt.Errorf("a frame of a watch has %d bytes", n)
		}
		frame := make([]byte, n)
		if _, err := io.ReadFull(body, frame); err != nil {
			return fmt.Errorf("a frame of a watch: %w", err)
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(frame); err != nil {
			return fmt.Errorf("a frame of a watch: %w", err)
		}
		object, err := fromProtobuf(e.Object.Raw)
		if err != nil {
			return fmt.Errorf("an object of a watch: %w", err)
		}
		tell(event{kind: e.Type, object: object, at: time.Now()})
	}
}
