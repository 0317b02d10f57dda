// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// encoding is how objects are sent.
type encoding int

const (
	jsonEncoding encoding = iota
	protobufEncoding
	encodings
)

func (e encoding) contentType() string {
	if e == protobufEncoding {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// The types of events.
const (
	eventAdded    = "ADDED"
	eventModified = "MODIFIED"
	eventDeleted  = "DELETED"
	eventBookmark = "BOOKMARK"
	eventError    = "ERROR"
)

// rawOf returns an object without its type: the message in protobuf; in JSON the text
// after the opening brace, so that the type can be put before it.
func rawOf(enc encoding, obj any) ([]byte, error) {
	if enc == jsonEncoding {
		text, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		return text[1:], nil
	}
	m, ok := obj.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf", obj)
	}
	return m.Marshal()
}

// around has the bytes before and after an object's raw bytes.
type around struct{ before, after []byte }

func (a around) size(raw int) int { return len(a.before) + raw + len(a.after) }

// wrap returns the bytes around an object of the given size in the response to a GET.
func (e encoding) wrap(t metav1.TypeMeta, size int) around {
	if e == jsonEncoding {
		return around{before: typeText(t), after: []byte("\n")}
	}
	return around{before: unknown(t, size), after: unknownEnd}
}

// event returns the bytes around an object of the given size in an event of a watch.
func (e encoding) event(kind string, t metav1.TypeMeta, size int) around {
	if e == jsonEncoding {
		return around{
			before: append([]byte(`{"type":"`+kind+`","object":`), typeText(t)...),
			after:  []byte("}\n"),
		}
	}
	whole := e.wrap(t, size)
	raw := message(1, whole.size(size)) // RawExtension.raw
	body := append(message(1, len(kind)), kind...)
	body = append(body, message(2, len(raw)+whole.size(size))...)
	body = append(body, raw...)
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+whole.size(size)))
	return around{before: append(append(frame, body...), whole.before...), after: whole.after}
}

// item returns the bytes around an object of the given size in a list. JSON needs a comma
// between two items.
func (e encoding) item(t metav1.TypeMeta, size int) around {
	switch {
	case e == protobufEncoding:
		return around{before: message(2, size)}
	case t.Kind == "":
		return around{before: []byte("{")}
	default:
		return around{before: typeText(t)}
	}
}

// list returns the bytes around the items of a list, which have the given size including,
// in JSON, their commas.
func (e encoding) list(t metav1.TypeMeta, m metav1.ListMeta, size int, null bool) (around, error) {
	if e == jsonEncoding {
		text, err := json.Marshal(m)
		if err != nil {
			return around{}, err
		}
		before := append(append(typeText(t), `"metadata":`...), text...)
		if null {
			return around{before: append(before, `,"items":null`...), after: []byte("}\n")}, nil
		}
		return around{before: append(before, `,"items":[`...), after: []byte("]}\n")}, nil
	}
	text, err := m.Marshal()
	if err != nil {
		return around{}, err
	}
	meta := append(message(1, len(text)), text...)
	return around{before: append(unknown(t, len(meta)+size), meta...), after: unknownEnd}, nil
}

// typeText returns the beginning of an object in JSON.
func typeText(t metav1.TypeMeta) []byte {
	return []byte(`{"kind":"` + t.Kind + `","apiVersion":"` + t.APIVersion + `",`)
}

// unknown returns the beginning of a [runtime.Unknown] in its envelope.
func unknown(t metav1.TypeMeta, size int) []byte {
	version := append(message(1, len(t.APIVersion)), t.APIVersion...)
	kind := append(message(2, len(t.Kind)), t.Kind...)
	b := append([]byte("k8s\x00"), message(1, len(version)+len(kind))...)
	b = append(append(b, version...), kind...)
	return append(b, message(2, size)...)
}

// unknownEnd is the end of it: no encoding and no content type.
var unknownEnd = []byte{3<<3 | 2, 0, 4<<3 | 2, 0}

// message returns the tag and the length of a protobuf field that has a length.
func message(field byte, size int) []byte {
	return binary.AppendUvarint([]byte{field<<3 | 2}, uint64(size))
}

// moment writes a time, in seconds, in an encoding: a varint of protobuf, always of five
// bytes in our century, or text.
func moment(dst []byte, seconds int64, enc encoding) {
	if enc == protobufEncoding {
		binary.PutUvarint(dst, uint64(seconds))
		return
	}
	time.Unix(seconds, 0).UTC().AppendFormat(dst[:0], time.RFC3339)
}

// momentText returns the text that moment writes.
func momentText(t time.Time, enc encoding) string {
	b := make([]byte, len("2006-01-02T15:04:05Z"))
	moment(b, t.Unix(), enc)
	if enc == protobufEncoding {
		b = b[:5]
	}
	return string(b)
}

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
