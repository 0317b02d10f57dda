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
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/respond"
)

// The serializers need no scheme: the objects carry their kind and version.
var (
	compactJSON = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{})
	prettyJSON  = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{Pretty: true})
	yaml        = json.NewSerializerWithOptions(nil, nil, nil, json.SerializerOptions{Yaml: true})
	proto       = protobuf.NewSerializer(nil, nil)
)

// document is one discovery document, in the encodings that were requested so far.
type document struct {
	object runtime.Object // never modified

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
		if len(r.plain) > respond.WorthGzip {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(r.plain) // a buffer accepts all writes
			_ = z.Close()
			r.gzipped = b.Bytes()
		}
	})
	return r.err
}

// body returns the document in a media type, and the same compressed if it is long
// enough.
func (d *document) body(as media) (plain, gzipped []byte, err error) {
	switch {
	case as.encoding == encode.Protobuf:
		err = d.protobuf.make(d.object, proto)
		return d.protobuf.plain, d.protobuf.gzipped, err
	case as.encoding == encode.YAML:
		plain, err = runtime.Encode(yaml, d.object)
		return plain, nil, err
	case as.pretty:
		plain, err = runtime.Encode(prettyJSON, d.object)
		return plain, nil, err
	}
	err = d.json.make(d.object, compactJSON)
	return d.json.plain, d.json.gzipped, err
}

// serve writes the document. Only aggregated documents may be cached: their ETag is
// computed from the JSON, whatever the encoding, and Vary keeps the encodings apart.
func (d *document) serve(w http.ResponseWriter, r *http.Request, as media) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache, private")
	as.pretty = as.pretty || respond.IsPretty(r)
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
		respond.DocumentError(w, fmt.Errorf("encode a discovery document: %w", err))
		return
	}
	body := plain
	if gzipped != nil {
		h.Add("Vary", "Accept-Encoding")
		if respond.AcceptsGzip(r) {
			h.Set("Content-Encoding", "gzip")
			body = gzipped
		}
	}
	h.Set("Content-Type", as.contentType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client is gone
}
