// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	versionPath = "/version"
	v2Path      = "/openapi/v2"
	indexPath   = "/openapi/v3"
)

// index is the document that leads to those of version 3.
var index = key{indexPath, runtime.ContentTypeJSON}

// Serve answers a request for /version or a document below /openapi; path is the one
// below the root of the API server. For any other path it does nothing and returns
// false.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) bool {
	if path == versionPath+"/" { // as the documents themselves have it
		path = versionPath
	}
	name, below := strings.CutPrefix(path, indexPath+"/")
	if path != versionPath && path != v2Path && path != indexPath && !below {
		return false
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
		return true
	}
	switch {
	case below:
		d.serveGroup(w, r, path, name)
	case path == v2Path:
		w.Header().Add("Vary", "Accept-Encoding")
		w.Header().Add("Vary", "Accept")
		d.serveCopy(w, r, path, v2Types)
	case path == indexPath:
		// It is JSON for everybody, whatever they accept.
		d.serveCurrent(w, r, index)
	default:
		d.serveCopy(w, r, path, jsonOnly)
	}
	return true
}

// serveCopy serves a document that has one address.
func (d *Documents) serveCopy(w http.ResponseWriter, r *http.Request, path string, offers []string) {
	accept, ok := choose(r.Header.Get("Accept"), offers)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	d.serveCurrent(w, r, key{path, accept})
}

func (d *Documents) serveCurrent(w http.ResponseWriter, r *http.Request, k key) {
	e, err := d.current(r.Context(), k, time.Time{})
	if err != nil {
		fail(w, err)
		return
	}
	// The version is too short for that.
	e.serve(w, r, k.path != versionPath && takesGzip(r))
}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// serveGroup serves one of the documents that the index has. Only for those the
// origin is asked at all.
func (d *Documents) serveGroup(w http.ResponseWriter, r *http.Request, path, name string) {
	accept, ok := choose(r.Header.Get("Accept"), v3Types)
	if !ok {
		w.Header().Add("Vary", "Accept")
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	k, hash := key{path, accept}, r.URL.Query().Get("hash")
	if e, _ := d.peek(k); e != nil && hash != "" && e.etag == strconv.Quote(hash) {
		w.Header().Add("Vary", "Accept")
		e.serveImmutable(w, r)
		return
	}
	all, err := d.current(r.Context(), index, time.Time{})
	if err != nil {
		fail(w, err)
		return
	}
	query, there := all.hashes[name]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Add("Vary", "Accept")
	// Who asks for what the index says must not get a copy that is older.
	var since time.Time
	if hash != "" && query == (url.Values{"hash": {hash}}).Encode() {
		_, since = d.peek(index)
	}
	e, err := d.current(r.Context(), k, since)
	switch {
	case err != nil:
		fail(w, err)
	case hash == "" || e.etag == "":
		e.serve(w, r, takesGzip(r))
	case e.etag == strconv.Quote(hash):
		e.serveImmutable(w, r)
	default:
		current := url.Values{"hash": {strings.Trim(e.etag, `"`)}}
		w.Header().Set("Location", "?"+current.Encode()) // of the same path
		w.Header().Set("Content-Type", e.contentType)
		w.Header().Set("Etag", e.etag)
		w.WriteHeader(http.StatusMovedPermanently)
	}
}

// serveImmutable serves a document by its hash, under which there will never be
// another.
func (e *edition) serveImmutable(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, immutable")
	w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	e.serve(w, r, takesGzip(r))
}

func (e *edition) serve(w http.ResponseWriter, r *http.Request, zipped bool) {
	h := w.Header()
	if zipped && !slices.Contains(h["Vary"], "Accept-Encoding") {
		h.Add("Vary", "Accept-Encoding")
	}
	if e.etag != "" {
		h.Set("Etag", e.etag)
		if matches(r, e.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", e.contentType)
	if e.lastModified != "" {
		h.Set("Last-Modified", e.lastModified)
	}
	if zipped {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(e.gzipped)))
		_, _ = w.Write(e.gzipped)
		return
	}
	plain, err := e.plain()
	if err != nil {
		fail(w, err)
		return
	}
	h.Set("Content-Length", strconv.FormatInt(e.size, 10))
	_, _ = io.Copy(w, plain) // who does not read on is gone
}

// matches reports whether the client has the document already.
func matches(r *http.Request, etag string) bool {
	for value := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if value = strings.TrimSpace(value); value == "*" || strings.TrimPrefix(value, "W/") == etag {
			return true
		}
	}
	return false
}

// fail answers for an origin that refuses, or does not answer.
func fail(w http.ResponseWriter, err error) {
	code, reason := http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	var r *refusal
	if errors.As(err, &r) && r.final() {
		switch code = r.code; code {
		case http.StatusNotFound:
			reason = metav1.StatusReasonNotFound
		case http.StatusForbidden:
			reason = metav1.StatusReasonForbidden
		default:
			// What the origin thinks of this server's credentials is not about the client.
			code = http.StatusServiceUnavailable
		}
	}
	refuse(w, code, reason, err.Error())
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	body, err := json.Marshal(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     int32(code),
	})
	if err != nil {
		http.Error(w, message, code)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
