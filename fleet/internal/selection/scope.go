// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package selection

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/kube"
)

// Scope limits which objects of a cluster are copied. It is for credentials that may not
// read the whole cluster, and for readers that do not need it. The zero value is the
// whole cluster.
//
// A scope has at most one namespace, because a state has one version. Like a whole
// cluster, one namespace is read by one list and one watch per resource. To mirror
// several namespaces, use several entries in the directory.
type Scope struct {
	// Namespace is the namespace whose objects are mirrored. If it is set, cluster-wide
	// resources are not mirrored. These include the definitions of types, so new types
	// are found only by the discovery every ten minutes. "" means the whole cluster.
	Namespace string
	// LabelSelector selects the objects of every resource, in the syntax of kubectl. ""
	// means all.
	LabelSelector string
}

// Whole reports whether the scope is the whole cluster.
func (s Scope) Whole() bool { return s == Scope{} }

// String describes the scope for people: "namespace a, label selector b=c".
func (s Scope) String() string {
	var parts []string
	if s.Namespace != "" {
		parts = append(parts, "namespace "+s.Namespace)
	}
	if s.LabelSelector != "" {
		parts = append(parts, "label selector "+s.LabelSelector)
	}
	if len(parts) == 0 {
		return "the whole cluster"
	}
	return strings.Join(parts, ", ")
}

// Validate returns an error if the scope cannot be used. It is not a method, because Scope is public.
func Validate(s Scope) error {
	if s.Namespace != "" {
		if reasons := content.IsPathSegmentName(s.Namespace); len(reasons) > 0 {
			return fmt.Errorf("scope: namespace %q: %s", s.Namespace, reasons[0])
		}
	}
	if _, err := labels.Parse(s.LabelSelector); err != nil {
		return fmt.Errorf("scope: label selector %q: %w", s.LabelSelector, err)
	}
	return nil
}

// Includes reports whether objects of a resource can be in a scope.
func Includes(s Scope, r kube.Resource) bool { return s.Namespace == "" || r.Namespaced }

// Query returns the query for the objects of a resource that are in a scope.
func Query(s Scope, r kube.Resource) kube.Query {
	return kube.Query{Resource: r.GroupVersionResource, Namespace: s.Namespace, LabelSelector: s.LabelSelector}
}
