// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The kinds of objects that have only metadata.
const (
	partialObject     = "PartialObjectMetadata"
	partialObjectList = "PartialObjectMetadataList"
)

// partialType is the type of an object that has only metadata.
var partialType = metav1.TypeMeta{Kind: partialObject, APIVersion: metav1.GroupName + "/v1"}

// media is the form of a response.
type media struct {
	encoding encoding
	// as, group and version are the kind to convert to, empty for none.
	as, group, version string
}

func (m media) partial() bool { return m.as != "" }

// isPartial reports whether the client requests metadata, as an object or as a list.
func (m media) isPartial() bool {
	return (m.as == partialObject || m.as == partialObjectList) && m.group == "meta.k8s.io" && m.version == "v1"
}

// negotiate returns the first media type of an Accept header that can be served and is
// allowed. Weights are ignored.
func negotiate(accept string, allowed func(media) bool) (media, bool) {
	if accept == "" {
		accept = runtime.ContentTypeJSON
	}
	for clause := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(strings.TrimSpace(clause), ";")
		var m media
		switch strings.TrimSpace(name) {
		case runtime.ContentTypeJSON, "*/*":
			m.encoding = jsonEncoding
		case runtime.ContentTypeProtobuf:
			m.encoding = protobufEncoding
		default:
			continue
		}
		served := true
		for param := range strings.SplitSeq(params, ";") {
			key, value, _ := strings.Cut(strings.TrimSpace(param), "=")
			switch key {
			case "as":
				m.as = value
			case "g":
				m.group = value
			case "v":
				m.version = value
			case "stream":
				served = served && value == "watch"
			}
		}
		if served && allowed(m) {
			return m, true
		}
	}
	return media{}, false
}

// acceptsGzip reports whether the client accepts gzip.
func acceptsGzip(r *http.Request) bool {
	for token := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
	}
	return false
}
