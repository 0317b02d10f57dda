// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"

	"github.com/watershed-project/watershed/replica/internal/discovery"
	"github.com/watershed-project/watershed/replica/internal/encode"
	"github.com/watershed-project/watershed/replica/internal/openapi"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// api is the API of one cluster, [clusterAPI], or of all of them, [fleetAPI].
type api interface {
	// serveHealth answers a request for the health of the API.
	serveHealth(w http.ResponseWriter, r *http.Request, q *Request)
	// unknown returns the error while the resources are not known, nil otherwise.
	unknown() error
	// discovery returns the documents about the resources that are mirrored now.
	discovery() *discovery.Documents
	// offers reports whether the API has a resource that the program answers itself.
	offers(o *ProgramResource) bool
	// schemas returns the OpenAPI documents.
	schemas() *openapi.Documents
	// serveSummary answers a request for the numbers of changes. If it returns an error, nothing
	// has been written.
	serveSummary(w http.ResponseWriter, r *http.Request, q *Request) error
	// read answers a request for a resource. If it returns an error, nothing has been
	// written.
	read(w http.ResponseWriter, r *http.Request, q *Request) error
}

// isHealth reports whether a path is for the health of an API.
func isHealth(path string) bool { return path == "/healthz" || path == "/livez" || path == "/readyz" }

// serveAPI answers a request for a path of an API.
func (s *Server) serveAPI(a api, w http.ResponseWriter, r *http.Request, q *Request) {
	w.Header().Set("Cache-Control", "no-cache, private")
	if isHealth(q.Path) {
		a.serveHealth(w, r, q)
		return
	}
	if err := a.unknown(); err != nil {
		respond.ErrorWithWarning(w, r, err)
		return
	}
	switch {
	case q.IsResource:
		read := a.read
		if own := s.programResourceOf(a, q); own != nil {
			read = own.serve
		}
		if err := read(w, r, q); err != nil {
			respond.Error(w, r, err)
		}
	case q.asksForSummary(r):
		if err := a.serveSummary(w, r, q); err != nil {
			respond.Error(w, r, err)
		}
	case a.discovery().With(s.listedProgramResources(a)).Serve(w, r, q.Path):
	case !q.Fleet && q.Path == "/version" && r.Method == http.MethodHead:
		respond.Error(w, r, status.NoMethod())
	case !q.Fleet && q.Path == "/version" && respond.CheckRoute(r.Header.Get("Accept"), encode.JSON.MediaType()) != nil:
		respond.Error(w, r, respond.CheckRoute(r.Header.Get("Accept"), encode.JSON.MediaType()))
	case a.schemas().Serve(w, r, q.Path):
	default:
		respond.Error(w, r, missing(q.Path))
	}
}
