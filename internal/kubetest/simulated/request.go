// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServeHTTP responds like the API server of the cluster.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.life.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.life.leave()
	w.Header().Set("Cache-Control", "no-cache, private")
	if !c.authorized(r) {
		c.refuse(w, r, unauthorized())
		return
	}
	if err := c.route(w, r); err != nil {
		c.refuse(w, r, err)
	}
}

func (c *Cluster) route(w http.ResponseWriter, r *http.Request) error {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch path[0] {
	case "api":
		return c.api(w, r, path[1:])
	case "apis":
		return c.apis(w, r, path[1:])
	}
	if len(path) == 1 {
		switch path[0] {
		case "readyz", "healthz", "livez":
			w.Header().Set("X-Content-Type-Options", "nosniff")
			c.answer(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok"))
			return nil
		case "version":
			c.document(w, "application/json", serverVersion)
			return nil
		}
	}
	http.NotFound(w, r)
	return nil
}

// api serves the core group. path is the part after /api.
func (c *Cluster) api(w http.ResponseWriter, r *http.Request, path []string) error {
	if len(path) == 0 {
		return c.discoverCore(w, r)
	}
	gv := schema.GroupVersion{Version: path[0]}
	if gv.Version != "v1" {
		return noResource()
	}
	if len(path) == 1 {
		return c.discoverVersion(w, r, gv)
	}
	return c.serve(w, r, gv, path[1:])
}

// apis serves the other groups. path is the part after /apis.
func (c *Cluster) apis(w http.ResponseWriter, r *http.Request, path []string) error {
	if len(path) == 0 {
		return c.discoverGroups(w, r)
	}
	group := c.catalogue.group(path[0])
	if group == nil {
		http.NotFound(w, r)
		return nil
	}
	if len(path) > 1 && path[1] != group.PreferredVersion.Version {
		return c.nothing(w, r, group.Name)
	}
	gv := schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version}
	switch len(path) {
	case 1:
		return c.discoverGroup(w, r, group)
	case 2:
		return c.discoverVersion(w, r, gv)
	default:
		return c.serve(w, r, gv, path[2:])
	}
}

// serve serves a resource.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, path []string) error {
	q := c.catalogue.find(gv, path)
	if q == nil {
		return c.nothing(w, r, gv.Group)
	}
	if r.Method != http.MethodGet {
		return noMethod()
	}
	var ok bool
	if q.media, ok = negotiate(r.Header.Get("Accept"), q.allows); !ok {
		return notAcceptable("406: Not Acceptable\n\nAvailable representations: application/json, " +
			"application/vnd.kubernetes.protobuf")
	}
	if q.name != "" {
		return c.get(w, r, q)
	}
	values := r.URL.Query()
	if err := q.parse(values); err != nil {
		return err
	}
	if q.options.Watch {
		if q.media.as == partialObjectList {
			return notAcceptable("you requested " + partialObjectList + ", but the events of a watch are no lists")
		}
		return c.watch(w, r, q)
	}
	return c.list(w, r, q)
}

// nothing responds to unknown paths of a group. The real server passes requests for
// custom groups to a handler that has only the paths of its types.
func (c *Cluster) nothing(w http.ResponseWriter, r *http.Request, group string) error {
	if group != EmptyGroup {
		return noResource()
	}
	http.NotFound(w, r)
	return nil
}

// systemNamespace is the namespace whose UID identifies a cluster. It is not listed.
const systemNamespace = "kube-system"

// systemNamespace returns the metadata of the namespace.
func (c *Cluster) systemNamespace() []byte {
	uid := make([]byte, len("00000000-0000-0000-0000-000000000000"))
	r := sequence(c.seed, 4)
	r.uid(uid)
	return fmt.Appendf(nil,
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"}}`, systemNamespace, uid, firstVersion)
}

// get responds to a GET of one object.
func (c *Cluster) get(w http.ResponseWriter, r *http.Request, q *query) error {
	c.stats.gets.Add(1)
	version, err := parseVersion(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if newest, ok := c.reach(r.Context(), uint64(version)); !ok {
		return tooLarge(uint64(version), newest)
	}
	if q.resource.namespaces && q.name == systemNamespace {
		c.answer(w, http.StatusOK, "application/json", c.systemNamespace())
		return nil
	}
	p := c.population
	lo, hi := q.resource.objects(p, q.namespace)
	i := q.resource.from(p, q.namespace, q.name)
	if i < lo || i >= hi || q.resource.key(p, q.namespace, i) != q.name {
		return apierrors.NewNotFound(q.resource.GroupResource(), q.name)
	}
	s, _ := c.read(q.resource, i, i+1, 0)
	if s.versions[0] == 0 {
		return apierrors.NewNotFound(q.resource.GroupResource(), q.name)
	}
	if q.media.as == partialObjectList {
		return notAcceptable("you requested " + partialObjectList + ", but the requested object is not a list (*core." +
			q.resource.kind + ")")
	}
	render := c.renderer(q.resource, q.media)
	body, err := render.appendWhole(nil, i, s.state(0))
	if err != nil {
		return err
	}
	c.answer(w, http.StatusOK, q.media.encoding.contentType(), body)
	return nil
}

// query is a parsed request for a resource.
type query struct {
	resource  *resource
	namespace string
	name      string // of one object; empty for all
	media     media
	options   internalversion.ListOptions
	nothing   bool // the selector selects no objects
}

// nothing is the only selector that is simulated, for watches: no object has this name.
const nothing = "metadata.name=-"

// find returns the query for a path of a group.
func (k *catalogue) find(gv schema.GroupVersion, path []string) *query {
	q := &query{}
	if len(path) >= 3 && path[0] == "namespaces" {
		q.namespace, path = path[1], path[2:]
	}
	if len(path) > 2 {
		return nil
	}
	if q.resource = k.resource(gv.WithResource(path[0])); q.resource == nil {
		return nil
	}
	if len(path) == 2 {
		q.name = path[1]
	}
	if !q.resource.namespaced && q.namespace != "" || q.resource.namespaced && q.namespace == "" && q.name != "" {
		return nil
	}
	return q
}

// allows reports whether the resource can be served in a form.
func (q *query) allows(m media) bool {
	if m.as != "" {
		return m.isPartial()
	}
	return m.encoding == jsonEncoding || !q.resource.custom
}

// parse parses the options of a list or a watch like the real server. Options that are
// not simulated are an error.
func (q *query) parse(values url.Values) error {
	o := &q.options
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, o); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(o, true)
	if errs := validation.ValidateListOptions(o, true); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.Watch && o.FieldSelector != nil && o.FieldSelector.String() == nothing {
		q.nothing, o.FieldSelector = true, nil
	}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() || o.FieldSelector != nil && !o.FieldSelector.Empty() {
		return apierrors.NewBadRequest("selectors are not simulated")
	}
	return nil
}
