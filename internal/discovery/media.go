// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package discovery

import (
	"cmp"
	"mime"
	"slices"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime"
)

const aggregatedKind = "APIGroupDiscoveryList"

// format is how a document is written.
type format int

const (
	asJSON format = iota
	asYAML
	asProtobuf
)

// formats are the media types, in the order in which a wildcard gets them.
var formats = [...]string{asJSON: runtime.ContentTypeJSON, asYAML: runtime.ContentTypeYAML, asProtobuf: runtime.ContentTypeProtobuf}

// media is what a client is answered with.
type media struct {
	format     format
	aggregated bool
	pretty     bool
}

// contentType is the media type of the answer. One who asked for an aggregated
// document knows by it that it is one.
func (m media) contentType() string {
	if m.aggregated {
		return formats[m.format] + ";g=" + apidiscoveryv2.GroupName + ";v=" + apidiscoveryv2.SchemeGroupVersion.Version + ";as=" + aggregatedKind
	}
	return formats[m.format]
}

// clause is one alternative of an Accept header.
type clause struct {
	kind, subtype string
	params        map[string]string
	q             float64
}

// clauses are those of the header, the best first: by weight, and of equal ones those
// without a wildcard.
func clauses(header string) []clause {
	var all []clause
	for part := range strings.SplitSeq(header, ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		c := clause{params: params, q: 1}
		c.kind, c.subtype, _ = strings.Cut(name, "/")
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.q = q
		}
		if c.q > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b clause) int {
		return cmp.Or(cmp.Compare(b.q, a.q), cmp.Compare(a.stars(), b.stars()))
	})
	return all
}

func (c clause) stars() int { return strings.Count(c.kind+c.subtype, "*") }

func (c clause) matches(f format) bool {
	kind, subtype, _ := strings.Cut(formats[f], "/")
	return (c.kind == "*" || c.kind == kind) && (c.subtype == "*" || c.kind != "*" && c.subtype == subtype)
}

// asks reports whether the clause is for an aggregated document, or for a plain one.
func (c clause) asks(aggregated bool) bool {
	if stream := c.params["stream"]; stream != "" && stream != "watch" || c.params["sv"] != "" {
		return false
	}
	as, g, v := c.params["as"], c.params["g"], c.params["v"]
	if aggregated {
		return as == aggregatedKind && g == apidiscoveryv2.GroupName && v == apidiscoveryv2.SchemeGroupVersion.Version
	}
	return as == "" && g == "" && v == ""
}

// negotiate is the best answer of a kind that the client accepts.
func negotiate(header string, aggregated bool) (media, bool) {
	if header == "" {
		return media{}, !aggregated
	}
	for _, c := range clauses(header) {
		for f := range formats {
			if c.matches(format(f)) && c.asks(aggregated) {
				return media{format: format(f), aggregated: aggregated, pretty: c.params["pretty"] == "1"}, true
			}
		}
	}
	return media{}, false
}
