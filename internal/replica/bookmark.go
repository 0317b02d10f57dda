// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	value := s.empty(meta)
	if s.form.encoding == asProtobuf {
		raw, err := value.(interface{ Marshal() ([]byte, error) }).Marshal()
		return protoEvent(nil, wire.Bookmark, s.kind, raw), err
	}
	if u, ok := value.(*unstructured.Unstructured); ok {
		raw, err := json.Marshal(u.Object)
		return jsonEvent(wire.Bookmark, raw), err
	}
	raw, err := json.Marshal(value)
	return jsonEvent(wire.Bookmark, raw), err
}

func jsonEvent(t wire.EventType, raw []byte) []byte {
	return append(append([]byte(`{"type":"`+t.String()+`","object":`), raw...), "}\n"...)
}

// empty is an object of the kind that has nothing but some metadata, and what the API
// server gives to every object of some kinds.
func (s *eventStream) empty(meta metav1.ObjectMeta) runtime.Object {
	if s.builtin == nil {
		about := map[string]any{"resourceVersion": meta.ResourceVersion}
		if meta.Annotations != nil {
			about["annotations"] = map[string]any{initialEnd: meta.Annotations[initialEnd]}
		}
		object := map[string]any{"kind": s.kind.Kind, "apiVersion": s.kind.GroupVersion().String(), "metadata": about}
		if s.kind.Kind == "CustomResourceDefinition" && !custom(s.kind) {
			object["spec"] = map[string]any{"group": "", "names": map[string]any{"plural": "", "kind": ""}, "scope": "", "versions": nil}
			object["status"] = map[string]any{"conditions": nil, "acceptedNames": map[string]any{"plural": "", "kind": ""}, "storedVersions": nil}
		}
		return &unstructured.Unstructured{Object: object}
	}
	value := s.builtin.New()
	value.GetObjectKind().SetGroupVersionKind(s.kind)
	switch value := value.(type) {
	case *appsv1.Deployment:
		value.Spec.Replicas = new(int32)
	case *appsv1.StatefulSet:
		value.Spec.Replicas = new(int32)
	case *appsv1.DaemonSet:
		annotations := map[string]string{appsv1.DeprecatedTemplateGeneration: "0"}
		maps.Copy(annotations, meta.Annotations)
		meta.Annotations = annotations
	}
	about := value.(metav1.Object)
	about.SetResourceVersion(meta.ResourceVersion)
	about.SetAnnotations(meta.Annotations)
	return value
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
	row, err := s.rows.printer.Row(s.empty(meta), time.Now())
	if err != nil {
		return nil, err
	}
	if s.rows.clusters {
		row.Cells = append(row.Cells, "")
	}
	switch s.rows.include {
	case metav1.IncludeMetadata, metav1.IncludeNone: // it would say nothing without
		partial := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		partial.APIVersion, partial.Kind = partialKind(s.rows.version, "").ToAPIVersionAndKind()
		row.Object.Object = partial
	case metav1.IncludeObject:
		row.Object.Object = s.empty(meta)
	}
	raw, err := json.Marshal(&row)
	if err != nil {
		return nil, err
	}
	var columns []metav1.TableColumnDefinition
	if !s.described {
		columns, s.described = s.rows.columns(), true
	}
	head, err := s.rows.head(&metav1.ListMeta{ResourceVersion: meta.ResourceVersion}, columns)
	return jsonEvent(wire.Bookmark, append(append(head, raw...), "]}"...)), err
}
