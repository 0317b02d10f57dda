// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxDocument bounds a document, compressed or not.
const maxDocument = 64 << 20

var errNoOrigin = errors.New("there is no way to the cluster")

// refusal is an answer of the origin that is no document.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return "the API server answers " + strconv.Itoa(r.code) + " " + http.StatusText(r.code)
}

// final reports whether the server means it: it is not busy, nor broken.
func (r *refusal) final() bool {
	return r.code >= 400 && r.code < 500 && r.code != http.StatusTooManyRequests && r.code != http.StatusRequestTimeout
}

// ask gets a document from the origin. If it is still what it was, that is old.
func (d *Documents) ask(ctx context.Context, k key, old *edition) (*edition, error) {
	cluster := d.origin()
	if cluster == nil {
		return nil, errNoOrigin
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Path: k.path}).String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", k.accept)
	if old := strings.Replace(k.accept, ".v1.0+", "@v1.0+", 1); old != k.accept {
		req.Header.Set("Accept", k.accept+","+old)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	if old != nil && old.etag != "" {
		req.Header.Set("If-None-Match", old.etag)
	}
	resp, err := cluster.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case resp.StatusCode == http.StatusNotModified && old != nil:
		return old, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s in %s: %w", k.path, cluster.Name(), &refusal{resp.StatusCode})
	case err != nil:
		return nil, fmt.Errorf("GET %s in %s: %w", k.path, cluster.Name(), err)
	case len(body) > maxDocument:
		return nil, fmt.Errorf("GET %s in %s: the answer is longer than %d bytes", k.path, cluster.Name(), maxDocument)
	}
	e, err := newEdition(k, resp.Header, body)
	if err != nil {
		return nil, fmt.Errorf("GET %s in %s: %w", k.path, cluster.Name(), err)
	}
	return e, nil
}

func newEdition(k key, h http.Header, body []byte) (*edition, error) {
	e := &edition{gzipped: body, etag: h.Get("Etag"), contentType: h.Get("Content-Type"), lastModified: h.Get("Last-Modified")}
	if h.Get("Content-Encoding") != "gzip" {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body) // a buffer takes everything
		_ = z.Close()
		e.gzipped = b.Bytes()
	}
	// Whatever the origin compressed is good, or it is not kept.
	plain, err := e.plain()
	if err != nil {
		return nil, err
	}
	if e.size, err = io.Copy(io.Discard, plain); err != nil {
		return nil, err
	}
	if k.path != indexPath {
		return e, nil
	}
	if plain, err = e.plain(); err != nil {
		return nil, err
	}
	var all struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.NewDecoder(plain).Decode(&all); err != nil {
		return nil, err
	}
	e.hashes = make(map[string]string, len(all.Paths))
	for path, at := range all.Paths {
		u, err := url.Parse(at.URL)
		if err != nil {
			return nil, err
		}
		e.hashes[path] = u.RawQuery
	}
	return e, nil
}

// plain reads the document uncompressed.
func (e *edition) plain() (io.Reader, error) { return gzip.NewReader(bytes.NewReader(e.gzipped)) }
