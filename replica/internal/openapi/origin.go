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

// maxDocument bounds a document and maxIndex the index of version 3, in bytes without
// compression. An index is read into memory, and has some 150 bytes for each version of a
// group; a document is not.
const maxDocument, maxIndex = 64 << 20, 2 << 20

var errNoOrigin = errors.New("there is no way to the cluster")

// refusal is a response of the origin that is not a document.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return "the API server answers " + strconv.Itoa(r.code) + " " + http.StatusText(r.code)
}

// final reports whether the refusal is permanent: the server is neither busy nor broken.
func (r *refusal) final() bool {
	return r.code >= 400 && r.code < 500 && r.code != http.StatusTooManyRequests && r.code != http.StatusRequestTimeout
}

// ask requests a document from the origin. If the document has not changed, it returns
// old.
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
	switch {
	case resp.StatusCode == http.StatusNotModified && old != nil:
		return old, nil
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s in %s: %w", k.path, cluster.Name(), &refusal{resp.StatusCode})
	}
	e, err := newEdition(k, resp.Header, resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s in %s: %w", k.path, cluster.Name(), err)
	}
	return e, nil
}

// newEdition reads a document. It holds in memory only the compressed form that is kept.
func newEdition(k key, h http.Header, body io.Reader) (*edition, error) {
	e := &edition{etag: h.Get("Etag"), lastModified: h.Get("Last-Modified")}
	var ok bool
	if e.contentType, ok = known(k.path, h.Get("Content-Type")); !ok {
		return nil, fmt.Errorf("the answer is of type %.100q, which is not that of a document", h.Get("Content-Type"))
	}
	most := int64(maxDocument)
	if k.path == indexPath {
		most = maxIndex
	}
	var kept bytes.Buffer
	var err error
	if h.Get("Content-Encoding") == "gzip" {
		e.size, err = check(io.TeeReader(body, &kept), most)
	} else {
		z := gzip.NewWriter(&kept)
		e.size, err = io.Copy(z, io.LimitReader(body, most+1))
		err = errors.Join(err, z.Close())
	}
	switch {
	case err != nil:
		return nil, err
	case e.size > most:
		return nil, fmt.Errorf("the answer is longer than %d bytes", most)
	}
	e.gzipped = bytes.Clone(kept.Bytes())
	if k.path == indexPath {
		e.hashes, err = e.index()
	}
	return e, err
}

// check reads a compressed document to its end, or until slightly more than the given
// number of bytes, and returns how many bytes it has.
func check(compressed io.Reader, most int64) (int64, error) {
	plain, err := gzip.NewReader(compressed)
	if err != nil {
		return 0, err
	}
	return io.Copy(io.Discard, io.LimitReader(plain, most+1))
}

// index returns the queries of the documents in an index, by their paths.
func (e *edition) index() (map[string]string, error) {
	plain, err := e.plain()
	if err != nil {
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
	hashes := make(map[string]string, len(all.Paths))
	for path, at := range all.Paths {
		u, err := url.Parse(at.URL)
		if err != nil {
			return nil, err
		}
		hashes[path] = u.RawQuery
	}
	return hashes, nil
}

// plain returns a reader of the uncompressed document.
func (e *edition) plain() (io.Reader, error) { return gzip.NewReader(bytes.NewReader(e.gzipped)) }
