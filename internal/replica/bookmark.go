// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watershed-project/watershed/wire"
)

// bookmarkFrame is a bookmark: an object of the kind that has a version only and, at the
// end of the initial events, says so.
func (s *eventStream) bookmarkFrame(version uint64, end bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if end {
		meta.Annotations = map[string]string{initialEnd: "true"}
	}
	switch {
	case s.rows != nil:
		return s.bookmarkRow(meta)
	case s.form.partial:
		return s.bookmarkPartial(meta)
	}
	value, err := s.bookmarkValue(meta)
	if err != nil {
		return nil, err
	}
	if s.form.encoding == asProtobuf {
		raw, err := value.(interface{ Marshal() ([]byte, error) }).Marshal()
		return protoEvent(nil, wire.Bookmark, s.kind, raw), err
	}
	raw, err := json.Marshal(value)
	return jsonEvent(wire.Bookmark, raw), err
}

func jsonEvent(t wire.EventType, raw []byte) []byte {
	return append(append([]byte(`{"type":"`+t.String()+`","object":`), raw...), "}\n"...)
}

// bookmarkValue is an empty object of the kind.
func (s *eventStream) bookmarkValue(meta metav1.ObjectMeta) (any, error) {
	if s.builtin == nil {
		// Custom resources have nothing but what is said here.
		object := map[string]any{"kind": s.kind.Kind, "apiVersion": s.kind.GroupVersion().String()}
		about := map[string]any{"resourceVersion": meta.ResourceVersion}
		if meta.Annotations != nil {
			about["annotations"] = meta.Annotations
		}
		object["metadata"] = about
		return object, nil
	}
	value := s.builtin.New()
	value.GetObjectKind().SetGroupVersionKind(s.kind)
	about := value.(metav1.Object)
	about.SetResourceVersion(meta.ResourceVersion)
	about.SetAnnotations(meta.Annotations)
	return value, nil
}

func (s *eventStream) bookmarkPartial(meta metav1.ObjectMeta) ([]byte, error) {
	kind := partialKind(s.form.version, "")
	value := &metav1.PartialObjectMetadata{ObjectMeta: meta}
	if s.form.encoding == asProtobuf {
		raw, err := value.Marshal()
		return protoEvent(nil, wire.Bookmark, kind, raw), err
	}
	value.APIVersion, value.Kind = kind.ToAPIVersionAndKind()
	raw, err := json.Marshal(value)
	return jsonEvent(wire.Bookmark, raw), err
}

// bookmarkRow is a table whose one row is of an empty object.
func (s *eventStream) bookmarkRow(meta metav1.ObjectMeta) ([]byte, error) {
	row := metav1.TableRow{Cells: []any{}}
	if s.rows.include != metav1.IncludeNone {
		partial := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		partial.APIVersion, partial.Kind = partialKind(s.rows.version, "").ToAPIVersionAndKind()
		raw, err := json.Marshal(partial)
		if err != nil {
			return nil, err
		}
		row.Object = runtime.RawExtension{Raw: raw}
	}
	raw, err := json.Marshal(&row)
	if err != nil {
		return nil, err
	}
	head, err := s.rows.head(&metav1.ListMeta{ResourceVersion: meta.ResourceVersion}, nil)
	return jsonEvent(wire.Bookmark, append(append(head, raw...), "]}"...)), err
}
