// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// What there is, the first for whom it is all the same. The protobuf types have an
// older name each, which is no media type by the letter and what most clients say.
var (
	jsonOnly = []string{runtime.ContentTypeJSON}
	v2Types  = []string{runtime.ContentTypeJSON, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
	v3Types  = []string{runtime.ContentTypeJSON, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"}
)

// choose is the offer that an Accept header likes best: by weight, and of equal ones
// the one that comes first.
func choose(header string, offers []string) (string, bool) {
	if header == "" {
		return offers[0], true
	}
	best, weight := "", 0.0
	for clause := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(clause, ";")
		q := 1.0
		for param := range strings.SplitSeq(params, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
				if parsed, err := strconv.ParseFloat(value, 64); err == nil {
					q = parsed
				}
			}
		}
		if offer, ok := match(strings.ReplaceAll(strings.TrimSpace(name), "@", "."), offers); ok && q > weight {
			best, weight = offer, q
		}
	}
	return best, best != ""
}

func match(name string, offers []string) (string, bool) {
	if name == "*/*" || name == "application/*" {
		return offers[0], true
	}
	for _, offer := range offers {
		if offer == name {
			return offer, true
		}
	}
	return "", false
}

// plainText is what API servers with aggregation call their index, though it is JSON.
const plainText = "text/plain; charset=utf-8"

// known returns the media type that a document at a path is served with, without most
// parameters that an API server adds, and false for one that documents do not have.
func known(path, contentType string) (string, bool) {
	if path == indexPath && contentType == plainText {
		return plainText, true
	}
	name, _, _ := strings.Cut(contentType, ";")
	name = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "@", ".")
	return name, slices.Contains(v2Types, name) || slices.Contains(v3Types, name)
}
