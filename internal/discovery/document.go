// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package discovery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// gzipFrom is the size from which an answer is compressed, if the client likes that.
const gzipFrom = 128 << 10

// The serializers need no scheme: the objects say what they are.
var (
	compactJSON = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{})
	prettyJSON  = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{Pretty: true})
	yaml        = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{Yaml: true})
	proto       = protobuf.NewSerializer(nil, nil)
)

// document is one answer, in the encodings that somebody asked for.
type document struct {
	object runtime.Object // never changed

	json, protobuf rendition
}

// rendition is a document in one encoding, made when first needed.
type rendition struct {
	once    sync.Once
	plain   []byte
	gzipped []byte // nil if the document is short
	etag    string // quoted
	err     error
}

func (r *rendition) make(object runtime.Object, encoder runtime.Encoder) error {
	r.once.Do(func() {
		if r.plain, r.err = runtime.Encode(encoder, object); r.err != nil {
			return
		}
		sum := sha256.Sum256(r.plain)
		r.etag = strconv.Quote(hex.EncodeToString(sum[:]))
		if len(r.plain) > gzipFrom {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(r.plain) // a buffer takes everything
			_ = z.Close()
			r.gzipped = b.Bytes()
		}
	})
	return r.err
}

// body is the document in some form, and the same compressed if that is worthwhile.
func (d *document) body(as media) (plain, gzipped []byte, err error) {
	switch {
	case as.format == asProtobuf:
		err = d.protobuf.make(d.object, proto)
		return d.protobuf.plain, d.protobuf.gzipped, err
	case as.format == asYAML:
		plain, err = runtime.Encode(yaml, d.object)
		return plain, nil, err
	case as.pretty:
		plain, err = runtime.Encode(prettyJSON, d.object)
		return plain, nil, err
	}
	err = d.json.make(d.object, compactJSON)
	return d.json.plain, d.json.gzipped, err
}

// serve writes the document. Only aggregated ones may be cached: their tag goes by
// the JSON, whatever the encoding, and Vary keeps the encodings apart.
func (d *document) serve(w http.ResponseWriter, r *http.Request, as media) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, private")
	as.pretty = as.pretty || forPeople(r)
	plain, gzipped, err := d.body(as)
	if err == nil && as.aggregated {
		if err = d.json.make(d.object, compactJSON); err == nil {
			h.Set("Etag", d.json.etag)
			h.Set("Vary", "Accept")
			h.Set("Cache-Control", "public")
			if r.Header.Get("If-None-Match") == d.json.etag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, fmt.Sprintf("encode a discovery document: %v", err), nil)
		return
	}
	body := plain
	if gzipped != nil {
		h.Add("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			body = gzipped
		}
	}
	h.Set("Content-Type", as.contentType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // who does not read on is gone
}

// forPeople reports whether somebody looks at the answer: they say so, or use what
// people use.
func forPeople(r *http.Request) bool {
	if wish := r.URL.Query().Get("pretty"); wish != "" {
		pretty, err := strconv.ParseBool(wish)
		return err == nil && pretty
	}
	for _, agent := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(r.UserAgent(), agent) {
			return true
		}
	}
	return false
}

// refuse answers with a Status, in JSON: who cannot be answered accepts nothing, or
// is not expected to ask at all.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) {
	body, err := runtime.Encode(prettyJSON, &metav1.Status{
		TypeMeta: typeMeta("Status", "v1"),
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Details:  details,
		Code:     int32(code),
	})
	if err != nil {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
