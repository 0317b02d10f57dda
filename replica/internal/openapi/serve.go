// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// Serve answers a request for /version or a document below /openapi. The path is relative
// to the root of the API server. For any other path it writes nothing and returns false.
func (d *Documents) Serve(w http.ResponseWriter, r *http.Request, path string) bool {
	if path == versionPath+"/" { // like the documents themselves
		path = versionPath
	}
	name, below := strings.CutPrefix(path, indexPath+"/")
	if path != versionPath && path != v2Path && path != indexPath && !below {
		return false
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		respond.Error(w, r, status.NoMethod())
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
		// The index is JSON for all clients, whatever they accept.
		d.serveCurrent(w, r, index)
	default:
		d.serveCopy(w, r, path, jsonOnly)
	}
	return true
}

// serveCopy serves a document that has one path.
func (d *Documents) serveCopy(w http.ResponseWriter, r *http.Request, path string, offers []string) {
	accept, ok := respond.Choose(r.Header.Get("Accept"), offers)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	d.serveCurrent(w, r, key{path, accept})
}

func (d *Documents) serveCurrent(w http.ResponseWriter, r *http.Request, k key) {
	e, err := d.current(r.Context(), k, time.Time{})
	if err != nil {
		fail(w, r, err)
		return
	}
	// The version is too short for compression.
	e.serve(w, r, k.path != versionPath && respond.AcceptsGzip(r))
}

// serveGroup serves a document of the index. Other paths are not requested from the
// origin.
func (d *Documents) serveGroup(w http.ResponseWriter, r *http.Request, path, name string) {
	accept, ok := respond.Choose(r.Header.Get("Accept"), v3Types)
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
		fail(w, r, err)
		return
	}
	query, there := all.hashes[name]
	if !there {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Add("Vary", "Accept")
	// A client that requests the hash in the index must not receive an older copy.
	var since time.Time
	if hash != "" && query == (url.Values{"hash": {hash}}).Encode() {
		_, since = d.peek(index)
	}
	e, err := d.current(r.Context(), k, since)
	switch {
	case err != nil:
		fail(w, r, err)
	case hash == "" || e.etag == "":
		e.serve(w, r, respond.AcceptsGzip(r))
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

// serveImmutable serves a document by its hash, which always identifies the same
// document.
func (e *edition) serveImmutable(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, immutable")
	w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	e.serve(w, r, respond.AcceptsGzip(r))
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
		fail(w, r, err)
		return
	}
	h.Set("Content-Length", strconv.FormatInt(e.size, 10))
	_, _ = io.Copy(w, plain) // an error means that the client is gone
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

// fail writes the error of an origin that refuses or does not respond.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusServiceUnavailable
	reason := metav1.StatusReasonServiceUnavailable
	var refused *refusal
	if errors.As(err, &refused) && refused.final() {
		switch code = refused.code; code {
		case http.StatusNotFound:
			reason = metav1.StatusReasonNotFound
		case http.StatusForbidden:
			reason = metav1.StatusReasonForbidden
		default:
			// The credentials that the origin refuses are not the client's.
			code = http.StatusServiceUnavailable
		}
	}
	respond.Error(w, r, status.New(int32(code), reason, err.Error()))
}
