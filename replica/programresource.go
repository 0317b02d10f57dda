// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package replica

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watershed-project/watershed/kube"
	"github.com/watershed-project/watershed/replica/internal/respond"
	"github.com/watershed-project/watershed/replica/internal/status"
)

// ProgramResource is a resource that the program answers itself, such as
// selfsubjectaccessreviews. Its objects are not in a namespace, and can only be created:
// nothing is stored.
//
// An API of a cluster has it if the cluster's own discovery does, and the API of the fleet if
// Fleet is set. Requests for it pass
// through [Options.Admit] and [Options.Authorize] like all others, with the verb create.
type ProgramResource struct {
	schema.GroupVersionResource
	// Kind and Singular are the names of one object.
	Kind, Singular string
	// Fleet means that the API of the fleet has the resource too.
	Fleet bool
	// PreferCluster means that the answer may lack something that only the cluster knows. With
	// [Options.PassThrough] the cluster answers callers whose credentials can be passed on.
	PreferCluster bool
	// New returns an empty object: a pointer to a Go type of the Kubernetes API.
	New func() runtime.Object
	// Create answers with the object that the client has sent, after filling it in. The
	// client receives it with the code 201, in the encoding that it accepts. An error is
	// the response: one without a status of the Kubernetes API becomes a 500.
	Create func(r *http.Request, q *Request, object runtime.Object) (runtime.Object, error)
}

// listed returns the resource as discovery lists it.
func (o *ProgramResource) listed() kube.Resource {
	return kube.Resource{
		GroupVersionResource: o.GroupVersionResource, Kind: o.Kind, Singular: o.Singular, Verbs: []string{"create"},
	}
}

func (c *clusterAPI) offers(o *ProgramResource) bool {
	return c.member.Lists(o.GroupVersionResource, "")
}

func (f *fleetAPI) offers(o *ProgramResource) bool { return o.Fleet }

// listedProgramResources returns the program's resources in an API, as discovery lists them.
func (s *Server) listedProgramResources(a api) []kube.Resource {
	var all []kube.Resource
	for i := range s.opts.ProgramResources {
		if o := &s.opts.ProgramResources[i]; a.offers(o) {
			all = append(all, o.listed())
		}
	}
	return all
}

// programResourceOf returns the program's resource in an API that a request is for, nil if there is none.
func (s *Server) programResourceOf(a api, q *Request) *ProgramResource {
	for i := range s.opts.ProgramResources {
		if o := &s.opts.ProgramResources[i]; o.GroupVersionResource == q.GroupVersionResource && a.offers(o) {
			return o
		}
	}
	return nil
}

// proto is implemented by the Go types that can be written as protobuf.
type proto interface{ MarshalTo([]byte) (int, error) }

// serve answers a request for the resource. If it returns an error, nothing has been
// written.
func (o *ProgramResource) serve(w http.ResponseWriter, r *http.Request, q *Request) error {
	switch {
	case q.Name != "", q.Namespace != "", q.watchPath:
		return missing(q.Path)
	case r.Method != http.MethodPost:
		return status.NoMethod()
	}
	if err := respond.CheckRoute(r.Header.Get("Accept"), respond.ObjectTypes...); err != nil {
		return err
	}
	empty := o.New()
	_, messages := empty.(proto)
	media, err := respond.Negotiate(r, respond.Ability{Protobuf: messages})
	if err != nil {
		return err
	}
	kind := o.GroupVersion().WithKind(o.Kind)
	object, err := respond.ReadObject(w, r, kind, empty)
	if err != nil {
		return err
	}
	if object, err = o.Create(r, q, object); err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	return respond.WriteObject(w, http.StatusCreated, object, media)
}
