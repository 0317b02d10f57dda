// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package fleet

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watershed-project/watershed/kube"
)

// Scope limits the copy of a cluster, for credentials that may not read all of it or
// readers that do not need all of it. The zero value is the whole cluster.
//
// It is one namespace because a state has one version: a namespace is read by one list
// and one watch per resource, as a whole cluster is. Several namespaces are several
// entries of the directory.
type Scope struct {
	// Namespace is the namespace whose objects are mirrored. With it, resources without a
	// namespace are not mirrored, and new types are found within ten minutes, since their
	// definitions cannot be watched. "" means the whole cluster.
	Namespace string
	// LabelSelector selects the objects of every resource, in the syntax of kubectl. ""
	// means all.
	LabelSelector string
}

// Whole reports whether nothing is left out.
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

func (s Scope) validate() error {
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

// has reports whether objects of a resource can be in the scope.
func (s Scope) has(r kube.Resource) bool { return s.Namespace == "" || r.Namespaced }

// query returns the query for the objects of a resource that are in the scope.
func (s Scope) query(r kube.Resource) kube.Query {
	return kube.Query{Resource: r.GroupVersionResource, Namespace: s.Namespace, LabelSelector: s.LabelSelector}
}
