// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package simulated

import (
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
