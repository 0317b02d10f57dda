// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// The media types that are served, the default first. The protobuf types have older names,
// which most clients use although they are not valid media types.
var (
	jsonOnly = []string{runtime.ContentTypeJSON}
	v2Types  = []string{runtime.ContentTypeJSON, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
	v3Types  = []string{runtime.ContentTypeJSON, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"}
)

// plainText is the media type that API servers with aggregation use for their index,
// although it is JSON.
const plainText = "text/plain; charset=utf-8"

// known returns the media type that a document at a path is served with, without most
// parameters that an API server adds. It returns false for a type that documents do not
// have.
func known(path, contentType string) (string, bool) {
	if path == indexPath && contentType == plainText {
		return plainText, true
	}
	name, _, _ := strings.Cut(contentType, ";")
	name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "@", ".")
	return name, slices.Contains(v2Types, name) || slices.Contains(v3Types, name)
}
