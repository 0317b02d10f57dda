// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package encode

import (
	"encoding/json"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/internal/stream"
	"github.com/watershed-project/watershed/wire"
)

// initialEnd is the annotation of the bookmark behind the initial events of a watch.
const initialEnd = "k8s.io/initial-events-end"

// BookmarkMeta returns the metadata of a bookmark. End marks the end of the initial events.
func BookmarkMeta(version uint64, end bool) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}
	if end {
		meta.Annotations = map[string]string{initialEnd: "true"}
	}
	return meta
}

// Bookmark returns a BOOKMARK event: an object of the watched kind that has only the given
// metadata. Builtin is the kind if it has a Go type, and nil otherwise.
func Bookmark(f Form, kind schema.GroupVersionKind, builtin *wire.Kind, meta metav1.ObjectMeta) ([]byte, error) {
	var value any
	if f.Partial {
		kind = PartialKind(f.Version, "")
		partial := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		partial.APIVersion, partial.Kind = kind.ToAPIVersionAndKind()
		value = partial
	} else {
		value = Empty(kind, builtin, meta)
	}
	if f.Encoding == Protobuf {
		raw, err := value.(interface{ Marshal() ([]byte, error) }).Marshal()
		return ProtobufEvent(nil, stream.Bookmark, kind, raw), err
	}
	if u, ok := value.(*unstructured.Unstructured); ok {
		value = u.Object
	}
	raw, err := json.Marshal(value)
	return JSONEvent(stream.Bookmark, raw), err
}

// Empty returns an object that has only metadata and the defaults that kube-apiserver gives
// to every object of its kind.
func Empty(kind schema.GroupVersionKind, builtin *wire.Kind, meta metav1.ObjectMeta) runtime.Object {
	if builtin == nil {
		about := map[string]any{"resourceVersion": meta.ResourceVersion}
		if meta.Annotations != nil {
			about["annotations"] = map[string]any{initialEnd: meta.Annotations[initialEnd]}
		}
		object := map[string]any{"kind": kind.Kind, "apiVersion": kind.GroupVersion().String(), "metadata": about}
		if kind.Kind == "CustomResourceDefinition" && !IsCustom(kind) {
			object["spec"] = map[string]any{
				"group": "", "names": map[string]any{"plural": "", "kind": ""}, "scope": "", "versions": nil,
			}
			object["status"] = map[string]any{
				"conditions": nil, "acceptedNames": map[string]any{"plural": "", "kind": ""}, "storedVersions": nil,
			}
		}
		return &unstructured.Unstructured{Object: object}
	}
	value := builtin.New()
	value.GetObjectKind().SetGroupVersionKind(kind)
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
