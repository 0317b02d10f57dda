// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watershed-project/watershed/replica/internal/encode"
)

// effect is what the response to a write tells about the state after it.
type effect struct {
	// version is that of the object, 0 if there is none.
	version uint64
	// key and uid are those of an object that was deleted, "" if there is none.
	key string
	uid types.UID
	// unknown means that the response does not tell.
	unknown bool
}

// result is the part of a response that tells its effect.
type result struct {
	Kind     string `json:"kind"`
	Metadata struct {
		ResourceVersion            string       `json:"resourceVersion"`
		UID                        types.UID    `json:"uid"`
		DeletionTimestamp          *metav1.Time `json:"deletionTimestamp"`
		DeletionGracePeriodSeconds *int64       `json:"deletionGracePeriodSeconds"`
		Finalizers                 []string     `json:"finalizers"`
	} `json:"metadata"`
	Details struct {
		UID types.UID `json:"uid"`
	} `json:"details"`
}

// isGone reports whether the object of a response was deleted: its last finalizer was removed.
// The version in the response is then one from before the deletion.
func (r *result) isGone() bool {
	m := &r.Metadata
	return m.UID != "" && m.DeletionTimestamp != nil && len(m.Finalizers) == 0 && (m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0)
}

// effectOf returns the effect of a write that has succeeded.
func effectOf(q *Request, contentType string, body []byte) effect {
	var r result
	var err error
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case encode.JSON.MediaType():
		err = json.Unmarshal(body, &r)
	case encode.Protobuf.MediaType():
		r, err = protobufResult(body)
	default:
		return effect{unknown: true}
	}
	switch version := r.Metadata.ResourceVersion; {
	case err != nil, strings.HasSuffix(r.Kind, "List") && q.Verb == "deletecollection":
		return effect{unknown: true}
	case r.Kind == "Status" && r.Details.UID != "" && q.Verb == "delete" && q.Subresource == "":
		return effect{key: objectKey(q), uid: r.Details.UID}
	case r.isGone() && q.Name != "":
		return effect{key: objectKey(q), uid: r.Metadata.UID}
	case r.Kind == "Status":
		return effect{unknown: true}
	case version == "":
		return effect{} // nothing is stored, such as a review
	default:
		n, err := strconv.ParseUint(version, 10, 64)
		return effect{version: n, unknown: err != nil}
	}
}

// objectKey returns the key of the object that a request names.
func objectKey(q *Request) string {
	if q.Namespace != "" {
		return q.Namespace + "/" + q.Name
	}
	return q.Name
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
	var o metav1.PartialObjectMetadata // all objects have their metadata in the same field
	if err := o.Unmarshal(envelope.Raw); err != nil {
		return r, err
	}
	m := &r.Metadata
	m.ResourceVersion, m.UID, m.DeletionTimestamp = o.ResourceVersion, o.UID, o.DeletionTimestamp
	m.DeletionGracePeriodSeconds, m.Finalizers = o.DeletionGracePeriodSeconds, o.Finalizers
	return r, nil
}
