// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package query

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed"
	"github.com/watershed-project/watershed/fleet"
	"github.com/watershed-project/watershed/wire"
)

// Handler answers queries. It is an [http.Handler]. All methods are safe for concurrent
// use.
type Handler struct {
	opts Options
	// resources are the resources by the names that requests use.
	resources map[string]resource
	writer    writer
	// clusters means that the resources are those of a fleet.
	clusters bool
}

// NewFactory returns a handler for resources of a factory. It leases them until
// [Handler.Close]. A nil opts means the defaults.
func NewFactory(f *watershed.Factory, resources Resources, opts *Options) (*Handler, error) {
	h, err := newHandler(resources, opts)
	if err != nil {
		return nil, err
	}
	for r, indexers := range resources {
		lease, err := watershed.Shared(f, &watershed.SharedOptions[*wire.Object]{Resource: r})
		if err != nil {
			h.Close()
			return nil, fmt.Errorf("query: %w", err)
		}
		h.resources[nameOf(r)] = newFactoryResource(lease, indexers)
	}
	return h, nil
}

// NewFleet returns a handler for resources of a fleet. The fleet must mirror them: see
// [fleet.Options]. A nil opts means the defaults.
func NewFleet(f *fleet.Fleet, resources Resources, opts *Options) (*Handler, error) {
	h, err := newHandler(resources, opts)
	if err != nil {
		return nil, err
	}
	h.clusters = true
	for r, indexers := range resources {
		h.resources[nameOf(r)] = newFleetResource(f, r.GroupResource(), indexers)
	}
	return h, nil
}

// newHandler returns a handler without resources. It fails if two of them have the same name
// in requests.
func newHandler(resources Resources, opts *Options) (*Handler, error) {
	if len(resources) == 0 {
		return nil, errors.New("query: no resources")
	}
	names := map[string]bool{}
	for r := range resources {
		name := nameOf(r)
		if r.Resource == "" || names[name] {
			return nil, fmt.Errorf("query: resource %q is empty or occurs in two versions", name)
		}
		names[name] = true
	}
	h := &Handler{opts: opts.withDefaults(), resources: map[string]resource{}}
	h.writer.logger = h.opts.Logger
	return h, nil
}

// nameOf returns the name of a resource in requests: "pods" or "deployments.apps".
func nameOf(r schema.GroupVersionResource) string { return r.GroupResource().String() }

// Close releases the leases of the handler and removes its indexes. The handler must not
// be used afterwards.
func (h *Handler) Close() {
	for _, r := range h.resources {
		r.close()
	}
}

// ServeHTTP answers a query.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := h.answer(w.Header(), r)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, part := range body {
		if _, err := w.Write(part); err != nil {
			return // the client has disconnected
		}
	}
}

// answer returns the parts of a response. It adds the headers about the age of the state
// that the response, or the error, is made from.
func (h *Handler) answer(header http.Header, r *http.Request) ([][]byte, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, refuse(http.StatusMethodNotAllowed, "method %s is not supported: use GET", r.Method)
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	source := h.resources[name]
	if source == nil {
		return nil, refuse(http.StatusNotFound, "resource %q cannot be queried here, only %s",
			name, strings.Join(slices.Sorted(maps.Keys(h.resources)), ", "))
	}
	q, err := parse(name, r.URL.RawQuery, key != "", h.clusters, h.opts.Limit)
	if err != nil {
		return nil, err
	}
	s, err := source.state(q.cluster)
	if err != nil {
		return nil, err
	}
	s.freshness().Write(header)
	if key != "" {
		return one(s, &h.writer, key, q)
	}
	return list(r.Context(), s, &h.writer, q, h.opts.Bytes)
}
