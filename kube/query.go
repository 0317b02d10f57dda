// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Query selects the objects to read and the form in which the server sends them.
type Query struct {
	// Resource is the resource to read; the group of the core API is "".
	Resource schema.GroupVersionResource
	// Namespace is the namespace to read, "" for all.
	Namespace string
	// LabelSelector and FieldSelector select objects. "" selects all.
	LabelSelector, FieldSelector string
	// Tweak can change the parameters of every list and watch, except whether it is a
	// watch. Default: none.
	Tweak func(*metav1.ListOptions)
	// MetadataOnly requests only the metadata of the objects. They still have their own
	// kind. A server that does not support this sends whole objects.
	MetadataOnly bool
	// JSON requests JSON where protobuf would be available.
	JSON bool
}

// String returns the resource with its group and the namespace, if there is one:
// deployments.apps of shop.
func (q Query) String() string {
	s := q.Resource.GroupResource().String()
	if q.Namespace != "" {
		s += " of " + q.Namespace
	}
	return s
}

func (q Query) validate() error {
	if err := validateResource(q.Resource); err != nil {
		return err
	}
	if q.Namespace != "" {
		if err := validateSegment("namespace", q.Namespace); err != nil {
			return err
		}
	}
	if _, err := labels.Parse(q.LabelSelector); err != nil {
		return fmt.Errorf("label selector %q: %w", q.LabelSelector, err)
	}
	if _, err := fields.ParseSelector(q.FieldSelector); err != nil {
		return fmt.Errorf("field selector %q: %w", q.FieldSelector, err)
	}
	return nil
}

func validateResource(r schema.GroupVersionResource) error {
	if r.Group != "" {
		if err := validateSegment("group", r.Group); err != nil {
			return err
		}
	}
	return errors.Join(validateSegment("version", r.Version), validateSegment("resource", r.Resource))
}

// validateSegment rejects values that would lead to another path.
func validateSegment(what, value string) error {
	if value == "" {
		return fmt.Errorf("no %s", what)
	}
	if reasons := content.IsPathSegmentName(value); len(reasons) > 0 {
		return fmt.Errorf("%s %q: %s", what, value, reasons[0])
	}
	return nil
}

// APIPath returns the path of a group version on a server, such as /apis/apps/v1.
func APIPath(gv schema.GroupVersion) string { return "/" + strings.Join(versionPath(gv), "/") }

// versionPath returns the path of a group version's description, as escaped segments.
func versionPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"api", url.PathEscape(gv.Version)}
	}
	return []string{"apis", url.PathEscape(gv.Group), url.PathEscape(gv.Version)}
}

// resourcePath returns the path of a resource's objects, as escaped segments.
func resourcePath(r schema.GroupVersionResource, namespace string) []string {
	p := versionPath(r.GroupVersion())
	if namespace != "" {
		p = append(p, "namespaces", url.PathEscape(namespace))
	}
	return append(p, url.PathEscape(r.Resource))
}
