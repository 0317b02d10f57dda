// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package kube

import (
	"errors"
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Query says which objects to read, and how.
type Query struct {
	// Resource is what to read; the group of the core API is "".
	Resource schema.GroupVersionResource
	// Namespace is where, "" for everywhere.
	Namespace string
	// LabelSelector and FieldSelector say which. "" is all.
	LabelSelector, FieldSelector string
	// Tweak has the last word on the parameters of every list and watch, but for
	// which of the two it is. Default: none.
	Tweak func(*metav1.ListOptions)
	// MetadataOnly asks the server to leave out all but the objects' metadata.
	// They still have their own kind. A server that cannot do it sends whole
	// objects.
	MetadataOnly bool
	// JSON asks for JSON where protobuf could be had.
	JSON bool
}

// String is the resource with its group and the namespace, if there is one:
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

// validateSegment refuses what would lead to another path.
func validateSegment(what, value string) error {
	if value == "" {
		return fmt.Errorf("no %s", what)
	}
	if reasons := content.IsPathSegmentName(value); len(reasons) > 0 {
		return fmt.Errorf("%s %q: %s", what, value, reasons[0])
	}
	return nil
}

// versionPath is where a group version is described, as escaped segments.
func versionPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"api", url.PathEscape(gv.Version)}
	}
	return []string{"apis", url.PathEscape(gv.Group), url.PathEscape(gv.Version)}
}

// resourcePath is where a resource's objects are, as escaped segments.
func resourcePath(r schema.GroupVersionResource, namespace string) []string {
	p := versionPath(r.GroupVersion())
	if namespace != "" {
		p = append(p, "namespaces", url.PathEscape(namespace))
	}
	return append(p, url.PathEscape(r.Resource))
}
