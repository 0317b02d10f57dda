// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package passthrough

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/view"
	"github.com/watershed-project/watershed/wire"
)

// effect is what the response to a write tells about the state after it.
type effect struct {
	// version is that of the object in the response, or of the newest one of several, 0 if
	// there is none.
	version uint64
	// objects are further objects that were changed.
	objects []change
	// unknown means that the response does not tell.
	unknown bool
}

// isNone reports whether nothing was stored.
func (e *effect) isNone() bool { return e.version == 0 && len(e.objects) == 0 && !e.unknown }

// change is the change of an object whose version is not known.
type change struct {
	key string
	// uid is that of the object, "" if the response does not have it.
	uid  types.UID
	kind changeKind
	// version is the version that was refused, for [moved]: the object no longer has it.
	version string
}

// changeKind is how an object was changed.
type changeKind uint8

const (
	// removed means that the object is gone.
	removed changeKind = iota
	// ended means that the object is gone, or has a time of deletion and stays until then.
	ended
	// bound means that the pod has a node.
	bound
	// moved means that the object has another version, or is gone.
	moved
)

// result is the part of a response that tells its effect.
type result struct {
	Kind     string     `json:"kind"`
	Metadata resultMeta `json:"metadata"`
	Details  struct {
		UID types.UID `json:"uid"`
	} `json:"details"`
	// Items are those of a list.
	Items []resultItem `json:"items"`
}

// resultItem is an item of a list.
type resultItem struct {
	Metadata resultMeta `json:"metadata"`
}

// resultMeta is the part of the metadata of an object, or of a list, that tells the effect.
type resultMeta struct {
	Name                       string       `json:"name"`
	Namespace                  string       `json:"namespace"`
	UID                        types.UID    `json:"uid"`
	ResourceVersion            string       `json:"resourceVersion"`
	DeletionTimestamp          *metav1.Time `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds *int64       `json:"deletionGracePeriodSeconds"`
	Finalizers                 []string     `json:"finalizers"`
}

func metaOf(m *metav1.ObjectMeta) resultMeta {
	return resultMeta{
		m.Name, m.Namespace, m.UID, m.ResourceVersion, m.DeletionTimestamp, m.DeletionGracePeriodSeconds, m.Finalizers,
	}
}

// isGone reports whether the object of a response was deleted: its last finalizer was removed.
// The version in the response is then one from before the deletion.
func (r *result) isGone() bool {
	m := &r.Metadata
	return m.UID != "" && m.DeletionTimestamp != nil && !stays(m.Finalizers, m.DeletionGracePeriodSeconds)
}

// stays reports whether an object with a time of deletion stays for a while. If it has neither
// a finalizer nor a grace period, kube-apiserver writes the time of deletion and deletes the
// object in the next step.
func stays(finalizers []string, grace *int64) bool {
	return len(finalizers) > 0 || grace != nil && *grace > 0
}

// effectOf returns the effect of a write that has succeeded.
func effectOf(q *Request, contentType string, body []byte) effect {
	r, err := resultIn(contentType, body)
	switch version := r.Metadata.ResourceVersion; {
	case err != nil:
		return effect{unknown: true}
	case r.isGone() && q.Name != "":
		return effect{objects: []change{{view.ObjectKey(q.Namespace, q.Name), r.Metadata.UID, removed, ""}}}
	case r.Kind == "Status":
		return statusEffect(q, r.Details.UID)
	case version == "":
		return effect{} // nothing is stored, such as a review
	default:
		n, err := strconv.ParseUint(version, 10, 64)
		if err != nil {
			return effect{unknown: true}
		}
		if q.Verb == "deletecollection" {
			return collectionEffect(&r)
		}
		return effect{version: n}
	}
}

// conflictEffect returns what a user knows after a write was refused with a conflict: the
// object is not the one that the body of the write names. A client reads the object then and
// tries again, which would fail again if the copy still had the same version.
func conflictEffect(q *Request, contentType string, body []byte) effect {
	r, err := resultIn(contentType, body)
	if err != nil || q.Name == "" || r.Metadata.ResourceVersion == "" {
		return effect{}
	}
	key := view.ObjectKey(q.Namespace, q.Name)
	return effect{objects: []change{{key, r.Metadata.UID, moved, r.Metadata.ResourceVersion}}}
}

// resultIn reads the result in a body.
func resultIn(contentType string, body []byte) (r result, err error) {
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case encode.JSON.MediaType(), string(types.MergePatchType), string(types.StrategicMergePatchType):
		return r, json.Unmarshal(body, &r)
	case encode.Protobuf.MediaType():
		return protobufResult(body)
	default:
		return r, fmt.Errorf("objects in %q are not read", media)
	}
}

// statusEffect returns the effect of a write whose response has no object.
func statusEffect(q *Request, uid types.UID) effect {
	c := change{key: view.ObjectKey(q.Namespace, q.Name), uid: cmp.Or(uid, q.uid)}
	pod := q.GroupResource() == (schema.GroupResource{Resource: "pods"})
	switch {
	case q.Verb == "delete" && q.Subresource == "" && uid != "":
		c.kind = removed
	case q.Verb == "create" && q.Subresource == "eviction" && pod:
		c.kind = ended
	case q.Verb == "create" && q.Subresource == "binding" && pod:
		c.kind = bound
	default:
		return effect{unknown: true}
	}
	return effect{objects: []change{c}}
}

// collectionEffect returns the effect of the deletion of all objects of a list, which is from
// before the deletion. When the copy has the newest of these objects it has had all of them, so
// one that it does not have is gone. It may reach the version of the list much later: that is
// one of the whole cluster, and a list without items is followed by no change of the resource.
func collectionEffect(r *result) (e effect) {
	for i := range r.Items {
		item := &r.Items[i].Metadata
		version, err := strconv.ParseUint(item.ResourceVersion, 10, 64)
		if err != nil || item.DeletionTimestamp != nil || item.Name == "" || item.UID == "" {
			// One that was about to be deleted may be gone now, or remain.
			return effect{unknown: true}
		}
		e.version = max(e.version, version)
		e.objects = append(e.objects, change{view.ObjectKey(item.Namespace, item.Name), item.UID, ended, ""})
	}
	return e
}

// isIn reports whether the copy shows the change: o is the object that it has at the key, nil
// if there is none. An object without a known UID may not have arrived yet.
func (c *change) isIn(o *wire.Object) bool {
	if o == nil {
		return c.uid != ""
	}
	if c.kind == bound {
		pod, err := wire.DecodeFresh[*corev1.Pod](o)
		return err == nil && (pod.Spec.NodeName != "" || c.uid != "" && pod.UID != c.uid)
	}
	meta, err := wire.DecodeFresh[*metav1.PartialObjectMetadata](o)
	if c.kind == moved {
		return err == nil && meta.ResourceVersion != c.version
	}
	if err != nil {
		return false
	}
	replaced := c.uid != "" && meta.UID != c.uid
	staysDeleted := meta.DeletionTimestamp != nil && stays(meta.Finalizers, meta.DeletionGracePeriodSeconds)
	return replaced || c.kind == ended && staysDeleted
}

// protobufResult reads a result in protobuf.
func protobufResult(body []byte) (r result, err error) {
	raw, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
	var envelope runtime.Unknown
	if !ok {
		return r, io.ErrUnexpectedEOF
	}
	if err := envelope.Unmarshal(raw); err != nil {
		return r, err
	}
	if r.Kind = envelope.Kind; r.Kind == "Status" {
		var s metav1.Status
		if err := s.Unmarshal(envelope.Raw); err != nil {
			return r, err
		}
		if s.Details != nil {
			r.Details.UID = s.Details.UID
		}
		return r, nil
	}
	if strings.HasSuffix(r.Kind, "List") {
		return listResult(r.Kind, envelope.Raw)
	}
	var o metav1.PartialObjectMetadata // all objects have their metadata in the same field
	if err := o.Unmarshal(envelope.Raw); err != nil {
		return r, err
	}
	r.Metadata = metaOf(&o.ObjectMeta)
	return r, nil
}

// listResult reads a list in protobuf. All lists have their metadata and items in the same
// fields.
func listResult(kind string, raw []byte) (r result, err error) {
	var l metav1.PartialObjectMetadataList
	if err := l.Unmarshal(raw); err != nil {
		return r, err
	}
	r.Kind, r.Metadata.ResourceVersion = kind, l.ResourceVersion
	for i := range l.Items {
		r.Items = append(r.Items, resultItem{metaOf(&l.Items[i].ObjectMeta)})
	}
	return r, nil
}
