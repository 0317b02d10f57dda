// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package respond

import (
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Shape is which part of the objects a response has.
type Shape uint8

const (
	// Whole is everything.
	Whole Shape = iota
	// Partial is the metadata.
	Partial
	// Table is a row for each object.
	Table
)

// Media is the form of a response.
type Media struct {
	Encoding encode.Encoding
	Shape    Shape
	// Version is the version of meta.k8s.io, for partial objects and tables.
	Version string
	// Listed means that the client requested partial objects as a list.
	Listed bool
	// Pretty means that the client is a person.
	Pretty bool
}

// Ability is the set of forms that can be served.
type Ability struct {
	// Protobuf means that whole objects can be protobuf. Metadata always can.
	Protobuf bool
	// Shapes means that there are other shapes than whole objects.
	Shapes bool
	// NoTables means that tables are not among the shapes.
	NoTables bool
	// Watch means that the response is a stream.
	Watch bool
}

// Negotiate returns what the first clause of the Accept header requests that can be
// served.
func Negotiate(r *http.Request, can Ability) (Media, error) {
	header := r.Header.Get("Accept")
	if header == "" {
		return Media{Pretty: IsPretty(r)}, nil
	}
	for clause := range Clauses(header) {
		if m, ok := can.accept(clause); ok {
			m.Pretty = m.Pretty || IsPretty(r)
			return m, nil
		}
	}
	return Media{}, NotAcceptable(false)
}

// Clause is a clause of an Accept header, and an encoding that it accepts.
type Clause struct {
	Encoding encode.Encoding
	// Params are the parameters of the media type.
	Params map[string]string
}

// Clauses yields the clauses of an Accept header, the best first, each with every encoding
// that it accepts.
func Clauses(header string) iter.Seq[Clause] {
	return func(yield func(Clause) bool) {
		for _, c := range goautoneg.ParseAccept(header) {
			for e := range encode.MediaTypes {
				e := encode.Encoding(e)
				if (c.Type == "*" || matchesType(&c, e)) && !yield(Clause{e, c.Params}) {
					return
				}
			}
		}
	}
}

func matchesType(clause *goautoneg.Accept, e encode.Encoding) bool {
	kind, sub, _ := strings.Cut(encode.MediaTypes[e], "/")
	return clause.Type == kind && (clause.SubType == "*" || clause.SubType == sub)
}

// accept returns what a clause requests, and whether it can be served.
func (can Ability) accept(clause Clause) (Media, bool) {
	e := clause.Encoding
	m := Media{Encoding: e}
	converts, as, group := false, "", ""
	for key, value := range clause.Params {
		switch key {
		case "as":
			converts, as = true, value
		case "g":
			converts, group = true, value
		case "v":
			converts, m.Version = true, value
		case "stream":
			if value != "" && (value != "watch" || e == encode.YAML) {
				return m, false
			}
		case "sv":
			if value != "" {
				return m, false
			}
		case "pretty":
			m.Pretty = value == "1"
		}
	}
	if !converts {
		return m, e != encode.Protobuf || can.Protobuf
	}
	if !can.Shapes || group != metav1.GroupName || m.Version != "v1" && m.Version != "v1beta1" {
		return m, false
	}
	switch as {
	case "Table":
		m.Shape = Table
		return m, e != encode.Protobuf && !can.NoTables
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		// A watch of lists would be silent.
		m.Shape, m.Listed = Partial, as == "PartialObjectMetadataList"
		return m, !m.Listed || !can.Watch
	}
	return m, false
}

// CheckRoute checks an Accept header as the router of the built-in types does before it
// looks at the type: it ignores parameters and type/* clauses.
func CheckRoute(header string, offers ...string) error {
	if header == "" || Names(header, offers) {
		return nil
	}
	return status.WithDetails(status.New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(offers, ", ")))
}

// Names reports whether an Accept header names one of the offers, or all media types,
// with any parameters.
func Names(header string, offers []string) bool {
	for clause := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(clause, ";")
		name = strings.TrimSpace(name)
		if name == "*/*" || slices.Contains(offers, name) {
			return true
		}
	}
	return false
}

var (
	// streamTypes are the media types of watches.
	streamTypes = []string{encode.JSON.MediaType() + ";stream=watch", encode.Protobuf.MediaType() + ";stream=watch"}
	// ObjectTypes are the media types that the router of the built-in types offers for one
	// object, and ListTypes those for lists.
	ObjectTypes = encode.MediaTypes[:]
	ListTypes   = slices.Concat(ObjectTypes, streamTypes)
)

// IsTrue reads a flag of a query as kube-apiserver does.
func IsTrue(query url.Values, name string) bool {
	values, ok := query[name]
	return ok && (len(values) == 0 || values[0] != "0" && !strings.EqualFold(values[0], "false"))
}

// IsPretty reports whether a person reads the response.
func IsPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if value := r.URL.Query().Get("pretty"); value != "" {
			pretty, err := strconv.ParseBool(value)
			return pretty && err == nil
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") ||
		strings.HasPrefix(agent, "Mozilla/5.0")
}

// NotAcceptable returns the 406 for a client that accepts no media type that can be
// served, or for a watch none that can be a stream.
func NotAcceptable(stream bool) error {
	supported := ObjectTypes
	if stream {
		supported = streamTypes
	}
	return status.New(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("only the following media types are accepted: %s", strings.Join(supported, ", ")))
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(name) == "gzip" {
				return weightOf(params) > 0
			}
		}
	}
	return false
}

// weightOf returns the weight in the parameters of a clause, 1 if there is none.
func weightOf(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(param), "q="); ok {
			if q, err := strconv.ParseFloat(value, 64); err == nil {
				return q
			}
		}
	}
	return 1
}

// Choose returns the offer that an Accept header prefers: by weight, and of equal ones the
// first. An "@" in a media type, which older clients send, is taken for a ".".
func Choose(header string, offers []string) (string, bool) {
	if header == "" {
		return offers[0], true
	}
	best, weight := "", 0.0
	for clause := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(clause, ";")
		q := weightOf(params)
		if offer, ok := matchOffer(strings.ReplaceAll(strings.TrimSpace(name), "@", "."), offers); ok && q > weight {
			best, weight = offer, q
		}
	}
	return best, best != ""
}

func matchOffer(name string, offers []string) (string, bool) {
	if name == "*/*" || name == "application/*" {
		return offers[0], true
	}
	return name, slices.Contains(offers, name)
}
