// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var siteVersion = schema.GroupVersion{Group: "example.watershed.dev", Version: "v1"}

// Site is a web site: a Deployment that is rolled out again when its secret changes.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SiteSpec   `json:"spec,omitempty"`
	Status SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Image    string `json:"image"`
	Replicas int32  `json:"replicas,omitempty"`
	// Secret is the name of a secret in the same namespace.
	Secret string `json:"secret"`
}

// SiteStatus is the observed state.
type SiteStatus struct {
	// Checksum is the checksum of the last secret that was rolled out.
	Checksum string `json:"checksum,omitempty"`
	// Pods is the number of pods in the namespace with the site's name.
	Pods int `json:"pods,omitempty"`
}

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (s *Site) DeepCopyObject() runtime.Object {
	out := &Site{TypeMeta: s.TypeMeta, Spec: s.Spec, Status: s.Status}
	s.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopyObject implements [runtime.Object].
func (l *SiteList) DeepCopyObject() runtime.Object {
	out := &SiteList{TypeMeta: l.TypeMeta, Items: make([]Site, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Site)
	}
	return out
}

// addSites registers the types with a scheme.
func addSites(s *runtime.Scheme) error {
	s.AddKnownTypes(siteVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(s, siteVersion)
	return nil
}
