// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package openapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/watershed-project/watershed/kube"
)

var errNoOrigin = errors.New("no connection to the cluster is configured")

// refusal is a response of the origin that is not a document.
type refusal struct{ code int }

func (r *refusal) Error() string {
	return "the API server answered " + strconv.Itoa(r.code) + " " + http.StatusText(r.code)
}

// final reports whether the refusal is permanent: the server is neither busy nor broken.
func (r *refusal) final() bool {
	return r.code >= 400 && r.code < 500 && r.code != http.StatusTooManyRequests && r.code != http.StatusRequestTimeout
}

// fetch requests a document from its cluster, which is nil while there is none. If the
// document has not changed, it returns old.
func fetch(ctx context.Context, cluster *kube.Cluster, k key, old *edition) (*edition, error) {
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
