// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// maxCompressed bounds a document as it arrives, in bytes. A gzip stream can be of any
// length and contain nothing.
const maxCompressed = 16 << 20

// maxDocument bounds a document and maxIndex the index of version 3, in bytes without
// compression. An index is read into memory, and has some 150 bytes for each version of a
// group; a document is not.
const maxDocument, maxIndex = 64 << 20, 2 << 20

// edition is a document at one time. It is never modified.
type edition struct {
	gzipped      []byte
	size         int64  // uncompressed
	etag         string // quoted
	contentType  string
	lastModified string
	// hashes are the queries of the documents in an index, by their paths. It is nil for
	// other documents.
	hashes map[string]string
}

// newEdition reads a document. It holds in memory only the compressed form that is kept.
func newEdition(k key, h http.Header, body io.Reader) (*edition, error) {
	e := &edition{etag: h.Get("Etag"), lastModified: h.Get("Last-Modified")}
	var ok bool
	if e.contentType, ok = known(k.path, h.Get("Content-Type")); !ok {
		return nil, fmt.Errorf("the response is of type %.100q, which is not a document", h.Get("Content-Type"))
	}
	most := int64(maxDocument)
	if k.path == indexPath {
		most = maxIndex
	}
	var kept bytes.Buffer
	var err error
	if h.Get("Content-Encoding") == "gzip" {
		e.size, err = check(io.TeeReader(io.LimitReader(body, maxCompressed+1), &kept), most)
		if kept.Len() > maxCompressed {
			err = fmt.Errorf("the compressed response is longer than %d bytes", maxCompressed)
		}
	} else {
		z := gzip.NewWriter(&kept)
		e.size, err = io.Copy(z, io.LimitReader(body, most+1))
		err = errors.Join(err, z.Close())
	}
	switch {
	case err != nil:
		return nil, err
	case e.size > most:
		return nil, fmt.Errorf("the response is longer than %d bytes", most)
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
