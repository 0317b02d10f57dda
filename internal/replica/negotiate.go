// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// encoding is how an answer is written.
type encoding uint8

const (
	asJSON encoding = iota
	asYAML
	asProtobuf
)

// mediaTypes are those of the encodings, in the order in which the API server names
// them.
var mediaTypes = [...]string{asJSON: "application/json", asYAML: "application/yaml", asProtobuf: "application/vnd.kubernetes.protobuf"}

// shape is what of the objects is in an answer.
type shape uint8

const (
	// partial is their metadata; without it and table they are whole.
	partial shape = iota + 1
	// table is a row for each.
	table
)

// media is what a client gets.
type media struct {
	encoding encoding
	shape    shape
	// version is that of meta.k8s.io for partial objects and tables.
	version string
	// listed says that partial objects were asked for as a list.
	listed bool
	pretty bool
}

// ability is what can be written.
type ability struct {
	protobuf bool // whole objects have it: their metadata always has
	shapes   bool // other shapes than whole objects
	// tableless says that there are no tables among the shapes.
	tableless bool
	watch     bool // the answer is a stream
}

// negotiate picks the first clause of an Accept header that can be served.
func negotiate(r *http.Request, can ability) (media, error) {
	header := r.Header.Get("Accept")
	if header == "" {
		return media{pretty: isPretty(r)}, nil
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		for e := range mediaTypes {
			if e := encoding(e); clause.Type == "*" || matchesType(&clause, e) {
				if m, ok := can.accept(&clause, e); ok {
					m.pretty = m.pretty || isPretty(r)
					return m, nil
				}
			}
		}
	}
	return media{}, notAcceptable(false)
}

func matchesType(clause *goautoneg.Accept, e encoding) bool {
	kind, sub, _ := strings.Cut(mediaTypes[e], "/")
	return clause.Type == kind && (clause.SubType == "*" || clause.SubType == sub)
}

// accept is what a clause asks for in an encoding, and whether that can be had.
func (can ability) accept(clause *goautoneg.Accept, e encoding) (media, bool) {
	m := media{encoding: e}
	converts, as, group := false, "", ""
	for key, value := range clause.Params {
		switch key {
		case "as":
			converts, as = true, value
		case "g":
			converts, group = true, value
		case "v":
			converts, m.version = true, value
		case "stream":
			if value != "" && (value != "watch" || e == asYAML) {
				return m, false
			}
		case "sv":
			if value != "" {
				return m, false
			}
		case "pretty":
			m.pretty = value == "1"
		}
	}
	if !converts {
		return m, e != asProtobuf || can.protobuf
	}
	if !can.shapes || group != metav1.GroupName || m.version != "v1" && m.version != "v1beta1" {
		return m, false
	}
	switch as {
	case "Table":
		m.shape = table
		return m, e != asProtobuf && !can.tableless
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		// A watch of lists would be silent.
		m.shape, m.listed = partial, as == "PartialObjectMetadataList"
		return m, !m.listed || !can.watch
	}
	return m, false
}

// routed checks an Accept header as the router of the built-in types does, before the
// types are asked: parameters do not count, and a part of a type is none.
func routed(header string, offers ...string) error {
	if header == "" {
		return nil
	}
	for clause := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(clause, ";")
		if name = strings.TrimSpace(name); name == "*/*" || slices.Contains(offers, name) {
			return nil
		}
	}
	return detailed(failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"406: Not Acceptable\n\nAvailable representations: "+strings.Join(offers, ", ")))
}

// What the router of the built-in types offers for one object and for lists.
var (
	routedTypes     = mediaTypes[:]
	routedListTypes = append(mediaTypes[:len(mediaTypes):len(mediaTypes)], mediaTypes[asJSON]+";stream=watch", mediaTypes[asProtobuf]+";stream=watch")
)

// isPretty reports whether a person reads the answer.
func isPretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty") {
		if value := r.URL.Query().Get("pretty"); value != "" {
			pretty, err := strconv.ParseBool(value)
			return pretty && err == nil
		}
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// notAcceptable is what a client is told that takes nothing that there is or, of a
// stream, nothing that can be one.
func notAcceptable(stream bool) error {
	supported := mediaTypes[:]
	if stream {
		supported = []string{mediaTypes[asJSON] + ";stream=watch", mediaTypes[asProtobuf] + ";stream=watch"}
	}
	return failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		fmt.Sprintf("only the following media types are accepted: %s", strings.Join(supported, ", ")))
}

// takesGzip reports whether a client takes gzip.
func takesGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(header, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(name) == "gzip" && !strings.Contains(strings.ReplaceAll(params, " ", ""), "q=0") {
				return true
			}
		}
	}
	return false
}
